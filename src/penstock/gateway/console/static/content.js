// The content of a message as JSON tree, text or hex. Everything is shown as text; sizes are bounded.

import { shorten, visible } from "./format.js";
import { h } from "./render.js";

export const MAX_TEXT = 200_000;
const MAX_HEX = 4096;
const MAX_DEPTH = 200;
const MAX_CHILDREN = 500;

// The bytes of a field that is text or base64. Pure.
export function bytesOf(message, name) {
  if (message[`${name}_base64`] !== undefined) return Uint8Array.from(atob(message[`${name}_base64`]), (sign) => sign.charCodeAt(0));
  const text = message[name];
  return text === null || text === undefined ? null : new TextEncoder().encode(text);
}

// The JSON value of a text, or undefined; a text that is too deep or no JSON has none. Pure.
export function jsonOf(text) {
  if (typeof text !== "string" || !/^\s*[[{"\-0-9tfn]/.test(text)) return undefined;
  let depth = 0;
  for (const sign of text.slice(0, 20_000)) {
    if (sign === "[" || sign === "{") depth++;
    else if (sign === "]" || sign === "}") depth--;
    if (depth > MAX_DEPTH) return undefined;
  }
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

// One line of a message for a list. Pure.
export function summary(message, limit = 200) {
  if (message.value_base64 !== undefined) return `binary, ${message.size} bytes`;
  if (message.value === null) return "tombstone";
  return shorten(visible(message.value.slice(0, limit * 2).replace(/\s+/g, " ")), limit);
}

// The value at a path of names and indexes, as `user.items[0]`. Pure.
export function valueAt(text, path) {
  let found = jsonOf(text);
  for (const step of path.replace(/^\$\.?/, "").split(/\.|\[(\d+)\]/).filter(Boolean)) {
    if (found === null || typeof found !== "object" || !Object.hasOwn(found, step)) return "";
    found = found[step];
  }
  return found === undefined ? "" : typeof found === "string" ? found : JSON.stringify(found);
}

export function hexLines(data, limit = MAX_HEX) {
  const lines = [];
  for (let start = 0; start < Math.min(data.length, limit); start += 16) {
    const row = [...data.slice(start, start + 16)];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${start.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  if (data.length > limit) lines.push(`… ${data.length - limit} more bytes`);
  return lines;
}

export function contentView(message, form) {
  if (message.value === null) return h("p", { class: "muted" }, "This message has no value: a tombstone, which deletes its key in a compacted topic.");
  const json = jsonOf(message.value);
  const chosen = form === "json" && json === undefined ? (message.value_base64 === undefined ? "text" : "hex") : form;
  if (chosen === "hex" || (chosen === "text" && message.value === undefined)) return h("pre", { class: "content" }, hexLines(bytesOf(message, "value")).join("\n"));
  if (chosen === "json") return h("div", { class: "content tree" }, node("", json, 0));
  const text = message.value;
  return h("pre", { class: "content" }, visible(text.slice(0, MAX_TEXT)), text.length > MAX_TEXT ? `\n… ${text.length - MAX_TEXT} more characters; download the message to see all` : null);
}

function node(name, value, depth) {
  const label = name === "" ? null : h("span", { class: "name" }, `${visible(shorten(String(name), 200))}: `);
  if (value === null || typeof value !== "object") return h("div", { key: String(name) }, label, scalar(value));
  const entries = Array.isArray(value) ? value.map((each, place) => [place, each]) : Object.entries(value);
  const sign = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  if (depth > MAX_DEPTH) return h("div", { key: String(name) }, label, "…");
  return h("details", { key: String(name), open: depth < 3 || null }, h("summary", null, label, h("span", { class: "muted" }, sign)),
    entries.slice(0, MAX_CHILDREN).map(([key, each]) => node(key, each, depth + 1)),
    entries.length > MAX_CHILDREN ? h("div", { class: "muted" }, `… ${entries.length - MAX_CHILDREN} more`) : null);
}

function scalar(value) {
  const kind = value === null ? "null" : typeof value;
  const text = kind === "string" ? JSON.stringify(visible(shorten(value, 10_000))) : String(value);
  return h("span", { class: `json-${kind}` }, text);
}
