// The brokers of the cluster, and one broker: figures, settings, the last lines of its log.

import { get, url } from "../api.js";
import { chart } from "../chart.js";
import { byteRate, bytes, count, rate } from "../format.js";
import { h } from "../render.js";
import { onCluster } from "../rights.js";
import { table, tableState } from "../table.js";
import { badge, card, definition, empty, link, loading, tabs } from "../widgets.js";
import { edit, settings } from "./topic_settings.js";

export const brokers = {
  path: "/brokers",
  title: () => "Brokers",
  nav: "Brokers",
  key: "b",
  start(context) {
    const state = { brokers: null, figures: {}, moves: null, table: tableState() };
    const load = async () => {
      const [list, overview, moves] = await Promise.all([get("/v1/brokers", context.signal), get("/v1/overview", context.signal), get("/v1/cluster/reassignments", context.signal)]);
      state.brokers = list.brokers;
      state.figures = byId(overview);
      state.moves = moves.reassignments;
    };
    context.run(load);
    context.every(5000, load);
    context.live.want({ overview: true });
    return { onFigures: ({ overview }) => (state.figures = byId(overview)), view: () => list(state, context) };
  },
};

const byId = (overview) => Object.fromEntries(overview.brokers.map((each) => [each.id, each]));

function list(state, context) {
  if (!state.brokers) return loading();
  const figure = (row) => state.figures[row.id] || {};
  const columns = [
    { name: "id", title: "Broker", cell: (row) => [link(["brokers", String(row.id)], {}, String(row.id)), row.controller ? badge("controller") : null] },
    { name: "address", title: "Address", wide: true, cell: (row) => `${row.host}:${row.port}` },
    { name: "rack", title: "Rack", wide: true, cell: (row) => row.rack ?? "–" },
    { name: "state", title: "State", cell: (row) => (figure(row).error ? badge("no answer", "bad") : figure(row).disk_full ? badge("disk full", "bad") : badge("serving", "good")) },
    { name: "partitions", title: "Replicas", align: "right", cell: (row) => count(figure(row).partitions) },
    { name: "in", title: "Received", align: "right", cell: (row) => byteRate(figure(row).received_rate) },
    { name: "out", title: "Sent", align: "right", wide: true, cell: (row) => byteRate(figure(row).sent_rate) },
    { name: "free", title: "Free", align: "right", cell: (row) => bytes(figure(row).free_bytes) },
  ];
  return [
    table({ state: state.table, columns, rows: state.brokers, rowKey: (row) => String(row.id), label: "Brokers", update: context.update }),
    state.moves?.length ? h("section", null, h("h2", null, "Reassignments in progress"), h("ul", null, state.moves.slice(0, 100).map((move) => h("li", { key: `${move.topic}-${move.partition}` }, `${move.topic} partition ${move.partition}: adding ${move.adding.join(", ") || "none"}, removing ${move.removing.join(", ") || "none"}`)))) : null,
  ];
}

const TABS = [["figures", "Figures"], ["settings", "Settings"], ["log", "Log"]];

export const broker = {
  path: "/brokers/:broker",
  title: ({ broker: id }) => `Broker ${id}`,
  start(context) {
    const id = context.params.broker;
    const tab = TABS.some(([each]) => each === context.query.tab) ? context.query.tab : "figures";
    const state = { configs: null, search: "", lines: null, history: null, figures: null, found: null };
    const load = loader(tab, id, state, context);
    context.run(load);
    if (tab !== "settings") context.every(2000, load);
    context.live.want({ overview: true });
    return {
      onFigures: ({ overview }) => (state.figures = byId(overview)[id] || null),
      view: () => [head(state), tabs(["brokers", id], tab, TABS), shown(tab, id, state, context, load)],
    };
  },
};

function loader(tab, id, state, context) {
  return async () => {
    if (!state.found) state.found = (await get("/v1/brokers", context.signal)).brokers.find((each) => String(each.id) === id) || {};
    if (tab === "settings") state.configs = (await get(url(["v1", "brokers", id, "configs"]), context.signal)).configs;
    else if (tab === "log") state.lines = (await get(url(["v1", "brokers", id, "log"]), context.signal)).lines;
    else state.history = await get(url(["v1", "history"], { series: ["received", "sent", "requests"].map((figure) => `broker:${id}:${figure}`).join(",") }), context.signal);
  };
}

function head({ figures, found }) {
  if (!figures) return null;
  return h("div", { class: "cards" },
    card("Address", found?.host ? `${found.host}:${found.port}` : "–", found?.controller ? "controller of the cluster" : ""),
    card("Replicas", count(figures.partitions)), card("Connections", count(figures.connections)), card("Requests", rate(figures.request_rate)), card("Free space", bytes(figures.free_bytes), figures.disk_full ? badge("full", "bad") : ""));
}

function shown(tab, id, state, context, reload) {
  if (tab === "settings") return settings(state, context, (config) => edit(config, url(["v1", "brokers", id, "configs"]), null, context, reload), onCluster("ALTER_CONFIGS"));
  if (tab === "log") return log(state.lines);
  if (!state.history) return loading();
  const { series, step_ms: stepMs, end_ms: endMs } = state.history;
  const values = (figure) => series[`broker:${id}:${figure}`] || [];
  return [
    state.figures?.alarms.length ? h("ul", { class: "notice bad" }, state.figures.alarms.map((alarm) => h("li", { key: `${alarm.kind}${alarm.partition}` }, `${alarm.kind} of ${alarm.partition}: ${alarm.detail}`))) : null,
    h("div", { class: "charts" },
      chart({ label: "Traffic with clients", series: [{ name: "received", values: values("received") }, { name: "sent", values: values("sent") }], stepMs, endMs, format: byteRate }),
      chart({ label: "Requests per second", series: [{ name: "requests", values: values("requests") }], stepMs, endMs, format: rate })),
  ];
}

function log(lines) {
  if (!lines) return loading();
  if (!lines.length) return empty("The log has no lines yet.");
  return h("ol", { class: "log", tabindex: "0", "aria-label": "Log lines, newest first" }, [...lines].reverse().map(({ time, level, message, ...fields }, place) =>
    h("li", { key: `${time}${place}`, class: level }, h("time", null, time), h("span", { class: "level" }, level), h("span", null, message), definition(Object.entries(fields).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)])))));
}
