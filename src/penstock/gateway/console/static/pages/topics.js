// The list of topics: search, sort, figures that move, and the creation of a topic.

import { request } from "../api.js";
import { formDialog } from "../dialog.js";
import { byteRate, bytes, count, duration, rate } from "../format.js";
import { ServerList } from "../list.js";
import { h } from "../render.js";
import { address } from "../router.js";
import { table, tableState, visibleRange } from "../table.js";
import { button, empty, field, input, loading, state as badgeOf, topicLink } from "../widgets.js";

const COLUMNS = [
  { name: "name", title: "Topic", sort: "name", cell: (row) => topicLink(row.name), class: "name" },
  { name: "partitions", title: "Partitions", sort: "partitions", align: "right", wide: true, cell: (row) => count(row.partitions) },
  { name: "bytes", title: "Size", sort: "bytes", align: "right", cell: (row) => bytes(row.bytes) },
  { name: "records", title: "Records", align: "right", wide: true, cell: (row) => count(row.records) },
  { name: "rate", title: "Written", sort: "rate", align: "right", cell: (row) => rate(row.record_rate) },
  { name: "byteRate", title: "Bytes", align: "right", wide: true, cell: (row) => byteRate(row.byte_rate) },
  { name: "lag", title: "Lag", sort: "lag", align: "right", cell: (row) => count(row.lag) },
  { name: "retention", title: "Retention", align: "right", wide: true, cell: (row) => (row.cleanup_policy === "compact" ? "compacted" : duration(row.retention_ms)) },
  { name: "health", title: "Health", wide: true, cell: (row) => badgeOf(row.health) },
];

export const topics = {
  path: "/topics",
  title: () => "Topics",
  nav: "Topics",
  key: "t",
  start(context) {
    const list = new ServerList(["v1", "topics"], "topics", context);
    const windowed = tableState();
    const load = () => context.run(() => list.load(query(context)));
    load();
    return {
      onFigures: (figures) => list.refresh(figures.topics, "name"),
      view: () => {
        follow(context, list, windowed);
        return view(context, list, windowed, load);
      },
    };
  },
};

function query({ query: given }) {
  return { search: given.search || "", sort: given.sort || "name", internal: given.internal === "true" ? "true" : "false" };
}

// Receive figures of the topics on the screen.
function follow(context, list, windowed) {
  if (!list.rows) return;
  const { first, last } = visibleRange(windowed.scrollTop, windowed.height, list.rows.length);
  const shown = list.rows.slice(first, last).map((row) => row.name);
  context.live.want(shown.length ? { topics: shown } : null);
}

function view(context, list, windowed, load) {
  const change = (changes) => {
    context.setQuery(changes);
    windowed.scrollTop = 0;
    load();
  };
  return [
    h("div", { class: "toolbar" },
      input(context.query.search || "", (search) => change({ search }), { type: "search", placeholder: "Search topics", "aria-label": "Search topics" }),
      h("label", { class: "check" }, h("input", { type: "checkbox", checked: context.query.internal === "true", on: { change: (event) => change({ internal: event.target.checked ? "true" : "" }) } }), "internal"),
      h("span", { class: "muted", role: "status" }, list.rows ? `${count(list.total)} topics` : ""),
      h("span", { class: "space" }),
      button("Create topic", () => create(), { class: "primary" })),
    list.rows === null ? loading() : table({
      state: windowed, columns: COLUMNS, rows: list.rows, total: list.total, rowKey: (row) => row.name, label: "Topics", update: context.update,
      sort: context.query.sort || "name", onSort: (sort) => change({ sort: sort === "name" ? "" : sort }), onNearEnd: () => context.run(() => list.more()),
      empty: context.query.search ? empty("No topic has this name.", "Search for a part of the name, or create the topic.") : empty("There are no topics yet.", "Create one here, or with: penstock topic create orders"),
    }),
  ];
}

function body(values) {
  const made = { name: values.name };
  if (values.partitions) made.partitions = Number(values.partitions);
  if (values.replication_factor) made.replication_factor = Number(values.replication_factor);
  if (values.retention) made.configs = { "retention.ms": String(Math.round(Number(values.retention) * 3_600_000)) };
  return made;
}

async function create() {
  const values = { name: "", partitions: "", replication_factor: "", retention: "" };
  const done = await formDialog({
    title: "Create a topic",
    values,
    label: "Create",
    fields: (given, update) => {
      const text = (name, label, attributes) => field(label, input(given[name], (value) => { given[name] = value; update(); }, attributes));
      return [
        text("name", "Name", { required: true, autofocus: true, autocomplete: "off" }),
        text("partitions", "Partitions (default of the broker if empty)", { type: "number", min: "1" }),
        text("replication_factor", "Replication factor (default of the broker if empty)", { type: "number", min: "1" }),
        text("retention", "Retention in hours (default of the broker if empty)", { type: "number", min: "0" }),
      ];
    },
    copy: (given) => ({
      method: "POST", target: "/v1/topics", body: body(given),
      penstock: ["topic", "create", given.name || "NAME", ...(given.partitions ? ["--partitions", given.partitions] : [])],
    }),
    act: (given) => request("POST", "/v1/topics", body(given)),
  });
  if (done) location.hash = address(["topics", values.name]);
}
