// The overview: health, what is wrong and since when, rates, the worst lag, disks.

import { get, url } from "../api.js";
import { chart } from "../chart.js";
import { byteRate, bytes, count, duration, rate } from "../format.js";
import { h } from "../render.js";
import { badge, card, empty, groupLink, link, loading, topicLink, when } from "../widgets.js";

const SERIES = ["cluster:cluster:records", "cluster:cluster:bytes", "cluster:cluster:lag"];

export const overview = {
  path: "/",
  title: () => "Overview",
  nav: "Overview",
  key: "o",
  start(context) {
    const state = { figures: null, history: null };
    const loadHistory = async () => {
      state.history = await get(url(["v1", "history"], { series: SERIES.join(",") }), context.signal);
    };
    context.run(async () => {
      state.figures = await get("/v1/overview", context.signal);
      await loadHistory();
    });
    context.every(2000, loadHistory);
    context.live.want({ overview: true });
    return {
      onFigures: (figures) => (state.figures = figures.overview),
      view: () => view(state),
    };
  },
};

const TEXTS = { ok: ["All is well", "good"], degraded: ["Degraded", "warn"], failing: ["Failing", "bad"] };

function view({ figures, history }) {
  if (!figures) return loading();
  const [text, level] = TEXTS[figures.status];
  return [
    h("section", { class: `health ${level}`, "aria-label": "Health" }, h("strong", null, text), problems(figures)),
    h("div", { class: "cards" },
      card("Written", rate(figures.record_rate), byteRate(figures.byte_rate)),
      card("Topics", link(["topics"], {}, count(figures.topics)), `${count(figures.partitions)} partitions`),
      card("Stored", bytes(figures.bytes), `${count(figures.records)} records`),
      card("Groups", link(["groups"], {}, count(figures.groups)), figures.worst_lag.length ? `worst lag ${count(figures.worst_lag[0].lag)}` : "no lag"),
      card("Brokers", link(["brokers"], {}, count(figures.brokers.length)), `${count(figures.under_replicated)} partitions under-replicated`),
      card("Disk", bytes(Math.min(...figures.brokers.map((broker) => broker.free_bytes))), full(figures.seconds_to_full))),
    history ? charts(history) : null,
    h("div", { class: "columns" }, busiest(figures), lags(figures)),
  ];
}

function problems(figures) {
  if (!figures.problems.length) return h("span", null, "Every partition has a leader and all of its replicas in sync.");
  return h("ul", null, figures.problems.map((problem) => h("li", { key: problem.text }, badge(problem.level, problem.level === "failing" ? "bad" : "warn"), " ", problem.text, " ", h("span", { class: "muted" }, "since ", when(problem.since_ms)))));
}

function full(seconds) {
  return seconds === null ? "free on the fullest disk" : `free; full in ${duration(seconds * 1000)} at this rate`;
}

function charts({ series, step_ms: stepMs, end_ms: endMs }) {
  const one = (name, label, title, format) => chart({ label, series: [{ name: title, values: series[name] || [] }], stepMs, endMs, format });
  return h("div", { class: "charts" },
    one(SERIES[0], "Records written per second", "records", rate),
    one(SERIES[1], "Bytes written per second", "bytes", byteRate),
    one(SERIES[2], "Greatest consumer lag, records", "lag", count));
}

function busiest(figures) {
  if (!figures.busiest.length) return empty("Nothing is being written.", "Send a message: penstock produce TOPIC, or open a topic and choose Send.");
  return h("section", null, h("h2", null, "Busiest topics"), h("table", { class: "small" }, h("thead", null, h("tr", null, h("th", { scope: "col" }, "Topic"), h("th", { scope: "col", class: "right" }, "Records"), h("th", { scope: "col", class: "right" }, "Bytes"))),
    h("tbody", null, figures.busiest.map((each) => h("tr", { key: each.topic }, h("td", null, topicLink(each.topic)), h("td", { class: "right" }, rate(each.record_rate)), h("td", { class: "right" }, byteRate(each.byte_rate)))))));
}

function lags(figures) {
  if (!figures.worst_lag.length) return empty("No group is behind.", "A group appears here when messages wait for it.");
  return h("section", null, h("h2", null, "Groups with the greatest lag"), h("table", { class: "small" }, h("thead", null, h("tr", null, h("th", { scope: "col" }, "Group"), h("th", { scope: "col" }, "State"), h("th", { scope: "col", class: "right" }, "Lag"))),
    h("tbody", null, figures.worst_lag.map((each) => h("tr", { key: each.group }, h("td", null, groupLink(each.group)), h("td", null, each.state), h("td", { class: "right" }, count(each.lag)))))));
}
