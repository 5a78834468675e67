// The frame around every page: navigation, the notice about a lost connection, the theme.

import { contact, session } from "./api.js";
import { relative } from "./format.js";
import { openHelp, openJump } from "./keys.js";
import { leave } from "./login.js";
import { h } from "./render.js";
import { address } from "./router.js";

const THEMES = { auto: ["light", "☀"], light: ["dark", "☾"], dark: ["auto", "◐"] };

export function frame({ pages, route, found, store, content }) {
  return h(
    "div",
    { class: "frame" },
    h("a", { class: "skip", href: "#main", on: { click: skip } }, "Skip to the content"),
    h(
      "header",
      { class: "side" },
      h("a", { class: "brand", href: "#/" }, mark(), "Penstock"),
      h("nav", { "aria-label": "Pages" }, pages.filter((page) => page.nav).map((page) => entry(page, found))),
      h(
        "div",
        { class: "tools" },
        h("button", { type: "button", class: "plain", on: { click: () => openJump(pages) } }, "Jump", h("kbd", null, "Ctrl K")),
        h("button", { type: "button", class: "plain", "aria-label": "Keyboard shortcuts", title: "Keyboard shortcuts", on: { click: openHelp } }, "?"),
        theme(store),
        user(),
      ),
    ),
    h("main", { id: "main", tabindex: "-1" }, lost(), h("h1", null, heading(found)), content),
  );
}

function heading(found) {
  return found ? found.page.heading?.(found.params) ?? found.page.title(found.params) : "Not found";
}

function entry(page, found) {
  const section = page.path.split("/")[1];
  const isCurrent = found && found.page.path.split("/")[1] === section;
  return h("a", { key: page.path, href: address(page.path.split("/").filter(Boolean)), "aria-current": isCurrent ? "page" : null }, page.nav);
}

function lost() {
  if (!contact.isLost) return null;
  return h("div", { key: "lost", class: "notice warn", role: "status" }, h("strong", null, "No connection. "), `The figures are from ${relative(contact.lastAnswer)}. The page continues by itself.`);
}

function theme(store) {
  const chosen = store.get("theme");
  const [next, sign] = THEMES[chosen] || THEMES.auto;
  const change = () => {
    localStorage.setItem("penstock.theme", next);
    store.set({ theme: next });
  };
  return h("button", { type: "button", class: "plain", title: `Theme: ${chosen}`, "aria-label": `Theme: ${chosen}. Change to ${next}`, on: { click: change } }, sign);
}

function user() {
  if (!session.user) return null;
  return h("button", { type: "button", class: "plain", title: `Logged in as ${session.user}`, on: { click: leave } }, "Log out");
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function mark() {
  return h("svg", { viewBox: "0 0 32 32", width: "24", height: "24", "aria-hidden": "true" },
    h("rect", { width: "32", height: "32", rx: "7", class: "mark" }),
    h("path", { d: "M8 9h10a6 6 0 0 1 0 12h-5v4", class: "mark-line" }),
    h("path", { d: "M8 15h9", class: "mark-line light" }));
}

// Tell screen readers the name of the page that has been opened.
export function announce(title) {
  let region = document.getElementById("announcer");
  if (!region) {
    region = document.createElement("div");
    region.id = "announcer";
    region.setAttribute("role", "status");
    region.className = "hidden-text";
    document.body.append(region);
  }
  region.textContent = title;
}
