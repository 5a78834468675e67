// The start of the console: routes, the frame around every page, and the life of the page that is shown.

import { contact, get } from "./api.js";
import { announce, frame } from "./frame.js";
import { setHidden } from "./hiding.js";
import { installKeys } from "./keys.js";
import { Live } from "./live.js";
import { enter } from "./login.js";
import { pages } from "./pages/index.js";
import { h, render } from "./render.js";
import { rights } from "./rights.js";
import { address, match, parse } from "./router.js";
import { Store } from "./store.js";
import { empty, notice } from "./widgets.js";

const root = document.createElement("div");
root.id = "root";
document.body.append(root);

const store = new Store({ theme: localStorage.getItem("penstock.theme") || "auto" });
const update = () => store.touch();
const live = new Live((figures) => {
  if (current.page && current.page.onFigures) current.page.onFigures(figures);
  update();
});
let current = { key: "", found: null, page: null, controller: new AbortController(), problem: null };

// What a page gets: its parameters, requests that end with the page, its query in the address, and `update`.
function makeContext(found, route, controller) {
  const context = {
    params: found.params,
    query: route.query,
    signal: controller.signal,
    live,
    update: () => {
      if (!controller.signal.aborted) update();
    },
    setQuery(changes) {
      context.query = { ...context.query, ...changes };
      const segments = route.path.split("/").filter(Boolean).map(decodeURIComponent);
      history.replaceState(null, "", address(segments, context.query));
      current.key = keyOf(parse(location.hash));
      current.problem = null;
      update();
    },
    // Run work of the page and show its failure; work of a page that was left is silent.
    async run(work) {
      try {
        await work();
        // Other work of the page may succeed beside a refused one, whose reason has to stay.
        if (current.problem?.work === work || current.problem?.error.status !== 403) current.problem = null;
      } catch (error) {
        if (controller.signal.aborted || error.name === "AbortError") return;
        current.problem = { error, work, retry: () => context.run(work) };
      }
      context.update();
    },
    // Repeat work at an interval while the page is shown and the tab is visible.
    every(ms, work) {
      const timer = setInterval(() => {
        if (!document.hidden) context.run(work);
      }, ms);
      controller.signal.addEventListener("abort", () => clearInterval(timer));
    },
  };
  return context;
}

const keyOf = (route) => `${route.path}?${new URLSearchParams(route.query)}`;

function navigate() {
  const route = parse(location.hash);
  if (keyOf(route) === current.key) return;
  current.controller.abort();
  live.want(null);
  const controller = new AbortController();
  const found = match(pages, route.path);
  current = { key: keyOf(route), found, page: null, controller, problem: null, route };
  if (found) current.page = found.page.start(makeContext(found, route, controller));
  const title = found ? found.page.title(found.params) : "Not found";
  document.title = `${title} · Penstock`;
  announce(title);
  show();
}

function show() {
  document.documentElement.dataset.theme = store.get("theme");
  const body = current.page ? current.page.view() : empty("There is no such page.", "The address may be mistyped. Press Ctrl-K to jump to a page.");
  const problem = current.problem ? notice(current.problem.error, current.problem.retry) : null;
  render(frame({ pages, route: current.route, found: current.found, store, content: [problem, h("div", { key: current.found?.page.path ?? "", class: "page" }, body)] }), root);
}

store.subscribe(show);
contact.onChange = update;
rights.onChange = update;
addEventListener("hashchange", navigate);
document.addEventListener("visibilitychange", () => {
  live.apply();
  if (!document.hidden) update();
});
setInterval(() => {
  if (contact.isLost && !document.hidden) update();
}, 1000);
installKeys({ pages, focusSearch: () => root.querySelector("input[type=search]")?.focus() });

// The settings say which values to hide, so nothing is shown before they are known.
async function start() {
  for (;;) {
    try {
      const settings = await get("/console/settings");
      setHidden(settings.hidden);
      if (settings.login) await enter();
      break;
    } catch {
      render(h("p", { class: "notice warn", role: "status" }, "The gateway does not answer. The console opens as soon as it does."), root);
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
  navigate();
}

start();
