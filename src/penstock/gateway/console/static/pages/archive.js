// The archive: pipelines that keep topics in tables for longer than the brokers do, or read them from there.

import { get } from "../api.js";
import { count } from "../format.js";
import { h } from "../render.js";
import { table, tableState } from "../table.js";
import { card, empty, link, loading, topicLink, when } from "../widgets.js";
import { COLUMNS, stateBadge } from "./pipelines.js";

export const archive = {
  path: "/archive",
  title: () => "Archive",
  nav: "Archive",
  key: "h",
  start(context) {
    const state = { rows: null, table: tableState() };
    const load = async () => (state.rows = (await get("/v1/pipelines", context.signal)).pipelines.filter(({ definition: { source, target } }) => target?.archive || source?.archive));
    context.run(load);
    context.every(5000, load);
    return { view: () => view(state, context) };
  },
};

const ARCHIVES = [
  { name: "place", title: "Archive", class: "name", cell: (row) => row.definition.target?.archive ?? row.definition.source.archive },
  { name: "topics", title: "Topics", cell: (row) => (row.definition.source?.topics ? row.definition.source.topics.map((topic) => h("span", { key: topic }, topicLink(topic), " ")) : row.definition.source?.pattern ?? "read from the archive") },
  { name: "pipeline", title: "Pipeline", cell: (row) => link(["pipelines", row.name], {}, row.name) },
  { name: "state", title: "State", cell: stateBadge },
  { name: "keep", title: "Kept for", wide: true, cell: (row) => row.definition.target?.keep ?? "ever" },
  ...COLUMNS.filter(({ name }) => ["rows", "lag", "success"].includes(name)),
];

function view(state, context) {
  if (!state.rows) return loading();
  if (!state.rows.length) return empty("Nothing is archived by a declared pipeline.",
    "An archive is a Delta table with every record of a topic, which queries read and replays send back.",
    "Once: penstock pipeline archive --topics orders --to /data/archive --once",
    "All the time: declare a pipeline whose target is {\"archive\": \"/data/archive\"}.",
    h("a", { href: "#/pipelines" }, "Go to the pipelines"));
  const sum = (name) => state.rows.reduce((total, row) => total + (row.status[name] ?? 0), 0);
  const last = Math.max(0, ...state.rows.map((row) => row.status.last_success_ms ?? 0));
  return [
    h("div", { class: "cards" },
      card("Pipelines", count(state.rows.length), `${count(state.rows.filter((row) => row.status.error).length)} failing`),
      card("Rows", count(sum("rows")), "written"), card("Lag", count(sum("lag_records")), "records not archived yet"), card("Last success", last ? when(last) : "–")),
    table({ state: state.table, columns: ARCHIVES, rows: state.rows, rowKey: (row) => row.name, label: "Archives", update: context.update }),
    h("p", { class: "muted" }, "Look into an archive: penstock pipeline query 'select key, count(*) from orders group by key' --archive DIR. Send it back: penstock pipeline replay."),
  ];
}
