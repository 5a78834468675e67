// A field of a queue's message in a table: one line of text, with control characters as codes, cut after some characters.

import { shorten, visible } from "../format.js";
import { isHidden } from "../hiding.js";
import { h } from "../render.js";

const LENGTH = 200;

// The line of a field that is text, JSON or base64. Pure.
export function lineOf(message, name) {
  if (message[`${name}_base64`] !== undefined) return `binary, ${Math.floor((message[`${name}_base64`].length * 3) / 4)} bytes`;
  const value = message[name];
  if (value === null || value === undefined) return "–";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return shorten(visible(text.slice(0, LENGTH * 2).replace(/\s+/g, " ")), LENGTH);
}

// The value of a message; a value of a topic in `console.hide.values` is not shown.
export function valueLine(message, topic) {
  return isHidden(topic) ? h("span", { class: "muted" }, "hidden") : lineOf(message, "value");
}
