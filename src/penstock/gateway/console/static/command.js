// An action of the console as a command: for the `penstock` program and for curl.

import { h } from "./render.js";

// Quote a word for a POSIX shell. Pure.
export function quote(word) {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

// The curl command of a request. Pure.
export function curl({ method, target, body }, origin) {
  const words = ["curl", "-s"];
  if (method !== "GET" && !(method === "POST" && body !== undefined)) words.push("-X", method);
  words.push(quote(`${origin}${target}`));
  if (body !== undefined) words.push("-H", "'content-type: application/json'", "-d", quote(JSON.stringify(body)));
  return words.join(" ");
}

// The penstock command of words, each quoted, with a text as its standard input. Pure.
export function penstock(words, input) {
  const command = ["penstock", ...words.map((word) => quote(String(word)))].join(" ");
  return input === undefined ? command : `printf %s ${quote(input)} | ${command}`;
}

// Both commands of an action, each with a button that copies it.
export function commands(action) {
  const shown = [["curl", curl(action, location.origin)]];
  if (action.penstock) shown.unshift(["penstock", penstock(action.penstock, action.input)]);
  return h(
    "details",
    { class: "commands" },
    h("summary", null, `Copy as ${shown.map(([name]) => name).join(" / ")}`),
    shown.map(([name, text]) => h("div", { class: "command", key: name }, h("code", null, text),
      h("button", { type: "button", class: "plain", "aria-label": `Copy the ${name} command`, on: { click: (event) => copy(event.currentTarget, text) } }, "Copy"))),
  );
}

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select and copy";
  }
}
