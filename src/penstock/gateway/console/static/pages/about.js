// About: the version, the cluster, the settings of the console, and where to read on.

import { get } from "../api.js";
import { h } from "../render.js";
import { badge, definition, loading } from "../widgets.js";

export const about = {
  path: "/about",
  title: () => "About",
  nav: "About",
  key: "i",
  start(context) {
    const state = { about: null, cluster: null, health: null };
    context.run(async () => {
      state.about = await get("/console/settings", context.signal);
      [state.cluster, state.health] = await Promise.all([get("/v1/cluster", context.signal), health()]);
    });
    return { view: () => view(state) };
  },
};

async function health() {
  return (await fetch("/health")).json();
}

function view({ about: settings, cluster, health: own }) {
  if (!settings) return loading();
  return [
    definition([
      ["Version", settings.version],
      ["Cluster", cluster ? cluster.cluster_id : "–"],
      ["Brokers", cluster ? String(cluster.brokers.length) : "–"],
      ["This process", own ? [badge(own.status, own.status === "serving" ? "good" : "warn"), own.degraded ? badge("degraded", "warn") : null] : "–"],
      ["Hidden values", settings.hidden.length ? settings.hidden.join(", ") : "none (console.hide.values)"],
    ]),
    h("ul", { class: "links" },
      h("li", null, h("a", { href: "/api" }, "API reference"), " of everything this console does"),
      h("li", null, h("a", { href: "/openapi.json" }, "OpenAPI document"), " for programs"),
      h("li", null, h("a", { href: "/metrics" }, "Metrics"), " for Prometheus"),
      h("li", null, h("a", { href: "/health" }, "Health"), " of this process")),
  ];
}
