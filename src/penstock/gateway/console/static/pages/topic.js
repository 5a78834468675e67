// One topic: messages, partitions, groups, settings and figures over time, each in a tab with its own address.

import { get, request, url } from "../api.js";
import { chart } from "../chart.js";
import { confirmAction } from "../dialog.js";
import { byteRate, bytes, count, rate } from "../format.js";
import { h } from "../render.js";
import { guarded, onTopic } from "../rights.js";
import { table, tableState } from "../table.js";
import { badge, card, empty, groupLink, link, loading, state as badgeOf, tabs, when } from "../widgets.js";
import { delayedTab } from "./topic_delayed.js";
import { messagesTab } from "./topic_messages.js";
import { partitionsDialog } from "./topic_partitions.js";
import { settingsTab } from "./topic_settings.js";

const TABS = [["messages", "Messages"], ["partitions", "Partitions"], ["groups", "Groups"], ["delayed", "Delayed"], ["settings", "Settings"], ["figures", "Figures"]];

export const topic = {
  path: "/topics/:topic",
  title: ({ topic: name }) => name,
  start(context) {
    const name = context.params.topic;
    const state = { name, figures: null, described: null, groups: null, history: null, partitions: tableState(), readers: tableState() };
    const tab = TABS.some(([each]) => each === context.query.tab) ? context.query.tab : "messages";
    const inner = { messages: messagesTab, delayed: delayedTab, settings: settingsTab }[tab]?.(context, name);
    const load = async () => {
      state.described = await get(url(["v1", "topics", name]), context.signal);
    };
    context.run(load);
    if (tab === "partitions") context.every(2000, load);
    if (tab === "groups") follow(context, 2000, async () => (state.groups = (await get(url(["v1", "topics", name, "groups"]), context.signal)).groups));
    if (tab === "figures") follow(context, 2000, async () => (state.history = await get(url(["v1", "history"], { series: `topic:${name}:records,topic:${name}:bytes` }), context.signal)));
    context.live.want({ topics: [name] });
    return {
      onFigures: (figures) => (state.figures = figures.topics[0] || state.figures),
      view: () => [header(state, context), tabs(["topics", name], tab, TABS), inner ? inner.view(state) : shown(tab, state, context)],
    };
  },
};

function follow(context, ms, work) {
  context.run(work);
  context.every(ms, work);
}

function header(state, context) {
  const { figures, described, name } = state;
  const partitions = described?.partitions ?? [];
  const stored = partitions.reduce((sum, each) => sum + Math.max(0, (each.high_watermark ?? 0) - (each.log_start_offset ?? 0)), 0);
  return [
    h("div", { class: "cards" },
      card("Written", rate(figures?.record_rate), byteRate(figures?.byte_rate)),
      card("Stored", bytes(figures?.bytes ?? partitions.reduce((sum, each) => sum + (each.bytes ?? 0), 0)), `${count(stored)} records`),
      card("Partitions", count(partitions.length), figures ? `${figures.replication_factor} ${figures.replication_factor === 1 ? "replica" : "replicas"} each` : ""),
      card("Health", figures ? badgeOf(figures.health) : "–", figures ? `greatest lag ${count(figures.lag)}` : "")),
    h("div", { class: "toolbar" },
      guarded("Change partitions", () => partitionsDialog(name, partitions.length).then(context.update), [onTopic("ALTER", name)]),
      guarded("Truncate", () => truncate(name, partitions, stored), [onTopic("DELETE", name)]),
      guarded("Delete topic", () => remove(name, stored), [onTopic("DELETE", name)], { class: "danger" })),
  ];
}

const COLUMNS = [
  { name: "partition", title: "Partition", align: "right", cell: (row) => [row.phase === "active" ? null : badge(row.phase, "warn"), String(row.partition)] },
  { name: "leader", title: "Leader", align: "right", cell: (row) => (row.leader === null ? badgeOf("failing") : link(["brokers", String(row.leader)], {}, String(row.leader))) },
  { name: "replicas", title: "Replicas", wide: true, cell: (row) => row.replicas.map((each) => h("span", { key: String(each), class: row.in_sync.includes(each) ? "replica" : "replica out", title: row.in_sync.includes(each) ? "in sync" : "not in sync" }, String(each))) },
  { name: "start", title: "First offset", align: "right", wide: true, cell: (row) => count(row.log_start_offset) },
  { name: "end", title: "End offset", align: "right", cell: (row) => count(row.high_watermark) },
  { name: "rate", title: "Written", align: "right", cell: (row) => rate(row.record_rate) },
  { name: "bytes", title: "Size", align: "right", cell: (row) => bytes(row.bytes) },
  { name: "first", title: "Oldest", align: "right", wide: true, cell: (row) => when(row.first_time_ms) },
  { name: "last", title: "Newest", align: "right", wide: true, cell: (row) => when(row.last_time_ms) },
];

const READERS = [
  { name: "id", title: "Group", cell: (row) => groupLink(row.id) },
  { name: "state", title: "State", cell: (row) => badgeOf(row.state) },
  { name: "members", title: "Members", align: "right", cell: (row) => count(row.members) },
  { name: "lag", title: "Lag in this topic", align: "right", cell: (row) => count(row.lag) },
];

function shown(tab, state, context) {
  if (tab === "partitions") {
    if (!state.described) return loading();
    return table({ state: state.partitions, columns: COLUMNS, rows: state.described.partitions, rowKey: (row) => String(row.partition), label: "Partitions", update: context.update });
  }
  if (tab === "groups") {
    if (!state.groups) return loading();
    return table({ state: state.readers, columns: READERS, rows: state.groups, rowKey: (row) => row.id, label: "Groups that read the topic", update: context.update, empty: empty("No group reads this topic.", `Read it: penstock consume ${state.name} --group readers`) });
  }
  if (!state.history) return loading();
  const { series, step_ms: stepMs, end_ms: endMs } = state.history;
  const [records, size] = [series[`topic:${state.name}:records`], series[`topic:${state.name}:bytes`]];
  if (!records) return empty("There are no figures yet.", "They begin when messages are written while this process runs; the 200 busiest topics have them.");
  return h("div", { class: "charts" },
    chart({ label: "Records written per second", series: [{ name: "records", values: records }], stepMs, endMs, format: rate }),
    chart({ label: "Bytes written per second", series: [{ name: "bytes", values: size }], stepMs, endMs, format: byteRate }));
}

function truncate(name, partitions, stored) {
  const body = { partitions: partitions.map(({ partition }) => ({ partition, offset: -1 })) };
  const target = url(["v1", "topics", name, "truncate"]);
  return confirmAction({
    title: `Truncate ${name}`, name, label: "Delete all messages",
    loss: `All ${count(stored)} messages of ${partitions.length} partitions are deleted for every reader. The topic, its settings and its groups stay. This cannot be undone.`,
    act: () => request("POST", target, body), copy: { method: "POST", target, body, penstock: ["topic", "truncate", name, "--before-time", "2100-01-01"] },
  });
}

async function remove(name, stored) {
  const target = url(["v1", "topics", name]);
  const done = await confirmAction({
    title: `Delete ${name}`, name, label: "Delete the topic",
    loss: `The topic, its settings, all ${count(stored)} messages and the offsets that groups committed for it are deleted. This cannot be undone.`,
    act: () => request("DELETE", target), copy: { method: "DELETE", target, penstock: ["topic", "delete", name] },
  });
  if (done) location.hash = "#/topics";
}
