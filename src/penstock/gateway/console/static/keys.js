// The keyboard: `/` searches, Ctrl-K jumps, `?` shows the keys, `g` and a letter opens a page.

import { get, url } from "./api.js";
import { openDialog } from "./dialog.js";
import { h } from "./render.js";
import { address } from "./router.js";

let pageList = [];
let pending = false;

export function installKeys({ pages, focusSearch }) {
  pageList = pages;
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      openJump(pages);
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
    if (event.key === "/") {
      event.preventDefault();
      focusSearch();
    } else if (event.key === "?") openHelp();
    else if (pending) {
      pending = false;
      const page = pages.find((each) => each.key === event.key);
      if (page) location.hash = address(page.path.split("/").filter(Boolean));
    } else if (event.key === "g") pending = true;
  });
}

function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

export function openHelp() {
  const rows = [["/", "search on this page"], ["Ctrl K", "jump to a page, a topic or a group"], ["?", "show these keys"],
    ...pageList.filter((page) => page.key).map((page) => [`g ${page.key}`, page.nav])];
  return openDialog("Keyboard shortcuts", (close) => [
    h("table", { class: "keys" }, h("tbody", null, rows.map(([key, text]) => h("tr", { key }, h("td", null, h("kbd", null, key)), h("td", null, text))))),
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary", on: { click: () => close(null) } }, "Close")),
  ]);
}

export function openJump(pages) {
  if (document.querySelector("dialog[open]")) return;
  const state = { text: "", chosen: 0, found: pageTargets(pages, ""), turn: 0 };
  openDialog("Jump to", (close, update) => {
    const go = (target) => {
      close(null);
      location.hash = target.href;
    };
    const search = async (text) => {
      state.text = text;
      state.chosen = 0;
      const turn = ++state.turn;
      const known = pageTargets(pages, text);
      state.found = known;
      update();
      const named = text ? await namedTargets(text) : [];
      if (turn === state.turn) {
        state.found = [...named, ...known];
        update();
      }
    };
    const onKey = (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) {
        event.preventDefault();
        state.chosen = Math.max(0, Math.min(state.found.length - 1, state.chosen + step));
        update();
      } else if (event.key === "Enter" && state.found[state.chosen]) {
        event.preventDefault();
        go(state.found[state.chosen]);
      }
    };
    return [
      h("input", {
        type: "text", class: "jump", autofocus: true, autocomplete: "off", placeholder: "Topic, group or page", "aria-label": "Topic, group or page",
        role: "combobox", "aria-expanded": "true", "aria-controls": "jump-list", "aria-activedescendant": state.found.length ? `jump-${state.chosen}` : null,
        value: state.text, on: { input: (event) => search(event.target.value), keydown: onKey },
      }),
      h("div", { id: "jump-list", role: "listbox", "aria-label": "Targets" }, state.found.map((target, place) =>
        h("div", { key: target.href, id: `jump-${place}`, role: "option", "aria-selected": String(place === state.chosen), on: { click: () => go(target) } },
          h("span", null, target.name), h("span", { class: "muted" }, target.kind)))),
    ];
  });
}

function pageTargets(pages, text) {
  const wanted = text.toLowerCase();
  return pages.filter((page) => page.nav && page.nav.toLowerCase().includes(wanted))
    .map((page) => ({ name: page.nav, kind: "page", href: address(page.path.split("/").filter(Boolean)) }));
}

async function namedTargets(text) {
  try {
    const [topics, groups] = await Promise.all([
      get(url(["v1", "topics"], { search: text, limit: 8 })), get(url(["v1", "groups"], { search: text, limit: 5 })),
    ]);
    return [
      ...topics.topics.map(({ name }) => ({ name, kind: "topic", href: address(["topics", name]) })),
      ...groups.groups.map(({ id }) => ({ name: id, kind: "group", href: address(["groups", id]) })),
    ];
  } catch {
    return [];
  }
}
