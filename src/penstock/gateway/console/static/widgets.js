// Small parts that pages share: cards, badges, times, links, notices, forms.

import { h } from "./render.js";
import { exact, relative } from "./format.js";
import { address } from "./router.js";

export function badge(text, level = "") {
  return h("span", { class: `badge ${level}` }, text);
}

const LEVELS = {
  ok: "good", Stable: "good", degraded: "warn", failing: "bad", Empty: "", PreparingRebalance: "warn", CompletingRebalance: "warn",
  Reconciling: "warn", Assigning: "warn", Dead: "bad", Ongoing: "warn", PrepareCommit: "warn", PrepareAbort: "warn",
};

export function state(text) {
  return badge(text, LEVELS[text] || "");
}

export function card(title, value, note) {
  return h("div", { class: "card" }, h("div", { class: "card-title" }, title), h("div", { class: "card-value" }, value), note ? h("div", { class: "card-note" }, note) : null);
}

// A relative time with the exact one on hover.
export function when(ms) {
  return h("time", { title: exact(ms) }, relative(ms));
}

export function link(segments, query, ...children) {
  return h("a", { href: address(segments, query) }, ...children);
}

export const topicLink = (name) => link(["topics", name], {}, name);
export const groupLink = (name) => link(["groups", name], {}, name);

export function notice(problem, retry) {
  return h(
    "div",
    { class: "notice bad", role: "alert" },
    h("strong", null, problem.status === 403 ? "You may not see this. " : "This did not work. "),
    problem.message,
    retry ? h("button", { type: "button", class: "plain", on: { click: retry } }, "Try again") : null,
  );
}

export function empty(title, ...hints) {
  return h("div", { class: "empty" }, h("h2", null, title), hints.map((hint) => h("p", null, hint)));
}

export function loading() {
  return h("p", { class: "loading", role: "status" }, "Loading…");
}

export function button(label, onClick, options = {}) {
  return h("button", { type: "button", class: options.class || null, disabled: options.disabled || null, title: options.title || null, on: { click: onClick } }, label);
}

export function field(label, control) {
  return h("label", { class: "field" }, h("span", null, label), control);
}

export function select(value, choices, onChange) {
  return h(
    "select",
    { value, on: { change: (event) => onChange(event.target.value) } },
    choices.map(([name, title]) => h("option", { value: name, key: name }, title)),
  );
}

export function input(value, onInput, attributes = {}) {
  return h("input", { value, ...attributes, on: { input: (event) => onInput(event.target.value) } });
}

// Tabs as links, so that each has an address of its own.
export function tabs(segments, current, entries) {
  return h(
    "nav",
    { class: "tabs", "aria-label": "Views" },
    entries.map(([name, title]) => h("a", { key: name, href: address(segments, name === entries[0][0] ? {} : { tab: name }), "aria-current": name === current ? "page" : null }, title)),
  );
}

export function definition(entries) {
  return h("dl", null, entries.map(([term, content]) => h("div", { key: term }, h("dt", null, term), h("dd", null, content))));
}
