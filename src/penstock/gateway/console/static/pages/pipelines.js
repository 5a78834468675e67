// Declared pipelines: their states, definitions and events. Declare, pause, resume, run now, delete.

import { get, request, url } from "../api.js";
import { confirmAction, formDialog } from "../dialog.js";
import { count } from "../format.js";
import { h } from "../render.js";
import { guarded, onTopic } from "../rights.js";
import { table, tableState } from "../table.js";
import { badge, card, definition, empty, field, input, link, loading, tabs, topicLink, when } from "../widgets.js";

const DEFINITIONS = "__pipelines";
const TABS = [["definition", "Definition"], ["events", "Events"]];
const LEVELS = { running: "good", waiting: "", paused: "warn", failing: "bad", failed: "bad" };
const EXAMPLE = { source: { topics: ["orders"] }, target: { topic: "orders-clean" } };
const MAY_CHANGE = [onTopic("WRITE", DEFINITIONS)];

export const stateBadge = (row) => badge(row.state, row.status.error ? "bad" : LEVELS[row.state.split(" ")[0]] || "");
export const sourceOf = ({ definition: { source } }) => source?.archive ?? source?.pattern ?? (source?.topics ?? []).join(", ");
export const targetOf = ({ definition: { target } }) => ["topic", "table", "archive"].filter((kind) => target?.[kind]).map((kind) => `${kind} ${target[kind]}`).join(", ");
const figure = (value) => (typeof value === "number" ? count(value) : "–");

export const pipelines = {
  path: "/pipelines",
  title: () => "Pipelines",
  nav: "Pipelines",
  key: "p",
  start(context) {
    const state = { rows: null, table: tableState() };
    const load = async () => (state.rows = (await get("/v1/pipelines", context.signal)).pipelines);
    context.run(load);
    context.every(3000, load);
    return { view: () => list(state, context) };
  },
};

export const COLUMNS = [
  { name: "name", title: "Pipeline", class: "name", cell: (row) => link(["pipelines", row.name], {}, row.name) },
  { name: "state", title: "State", cell: stateBadge },
  { name: "source", title: "From", cell: sourceOf },
  { name: "target", title: "To", cell: targetOf },
  { name: "rows", title: "Rows", align: "right", cell: (row) => figure(row.status.rows) },
  { name: "lag", title: "Lag", align: "right", wide: true, cell: (row) => figure(row.status.lag_records) },
  { name: "success", title: "Last success", align: "right", wide: true, cell: (row) => (row.status.last_success_ms ? when(row.status.last_success_ms) : "–") },
  { name: "failures", title: "Failures", align: "right", wide: true, cell: (row) => figure(row.status.failures) },
];

function list(state, context) {
  if (!state.rows) return loading();
  const wanted = (context.query.search || "").toLowerCase();
  const rows = state.rows.filter((row) => `${row.name} ${sourceOf(row)} ${targetOf(row)}`.toLowerCase().includes(wanted));
  return [
    h("div", { class: "toolbar" },
      input(context.query.search || "", (search) => context.setQuery({ search }), { type: "search", placeholder: "Search pipelines", "aria-label": "Search pipelines" }),
      h("span", { class: "muted", role: "status" }, `${count(rows.length)} pipelines`), h("span", { class: "space" }),
      guarded("Declare pipeline", () => declare(null), MAY_CHANGE, { class: "primary" })),
    table({ state: state.table, columns: COLUMNS, rows, rowKey: (row) => row.name, label: "Pipelines", update: context.update,
      empty: wanted ? empty("No pipeline matches.") : empty("There are no pipelines yet.", "A pipeline moves messages from topics to topics, tables and archives with Spark: penstock pipeline apply -f orders.yaml", "penstock pipeline serve runs the pipelines that are declared.") }),
  ];
}

export const pipeline = {
  path: "/pipelines/:pipeline",
  title: ({ pipeline: name }) => name,
  start(context) {
    const name = context.params.pipeline;
    const tab = context.query.tab === "events" ? "events" : "definition";
    const state = { shown: null, events: null };
    const load = async () => {
      state.shown = await get(url(["v1", "pipelines", name]), context.signal);
      if (tab === "events") state.events = (await get(url(["v1", "pipelines", name, "logs"]), context.signal)).events;
    };
    context.run(load);
    context.every(3000, load);
    return { view: () => details(state, tab, () => context.run(load)) };
  },
};

function details(state, tab, reload) {
  const { shown } = state;
  if (!shown) return loading();
  const { status } = shown;
  const act = (verb) => () => request("POST", url(["v1", "pipelines", shown.name, verb])).then(reload);
  return [
    status.error ? h("div", { class: "notice bad", role: "alert" }, String(status.error)) : null,
    h("div", { class: "cards" },
      card("State", stateBadge(shown), `revision ${count(shown.revision)}`), card("Rows", figure(status.rows), "since it was declared"),
      card("Lag", figure(status.lag_records), "records behind"), card("Last success", status.last_success_ms ? when(status.last_success_ms) : "–", `${figure(status.failures)} failures`)),
    h("div", { class: "toolbar" },
      shown.paused ? guarded("Resume", act("resume"), MAY_CHANGE, { class: "primary" }) : guarded("Pause", act("pause"), MAY_CHANGE),
      guarded("Run now", act("run"), MAY_CHANGE, { disabled: !shown.definition.schedule, title: shown.definition.schedule ? "" : "A pipeline without a schedule runs all the time" }),
      guarded("Change", () => declare(shown).then((done) => done && reload()), MAY_CHANGE),
      guarded("Delete pipeline", () => remove(shown), MAY_CHANGE, { class: "danger" })),
    tabs(["pipelines", shown.name], tab, TABS),
    tab === "events" ? events(state.events) : defined(shown),
  ];
}

function defined(shown) {
  const { source, target, schedule, dead_letter: dead } = shown.definition;
  return [
    definition([
      ["From", source?.topics ? source.topics.map((topic) => h("span", { key: topic }, topicLink(topic), " ")) : sourceOf(shown)],
      ["To", target?.topic ? [topicLink(target.topic), target.table ? ` and table ${target.table}` : ""] : targetOf(shown)],
      ["Schedule", schedule ? h("code", null, typeof schedule === "string" ? schedule : JSON.stringify(schedule)) : "runs all the time"],
      ["Dead letters", dead ? topicLink(dead) : "none"],
    ]),
    h("pre", { class: "content", tabindex: "0", "aria-label": "Definition" }, JSON.stringify(shown.definition, null, 2)),
  ];
}

function events(found) {
  if (!found) return loading();
  if (!found.length) return empty("There are no events yet.", "They begin when a supervisor runs the pipeline: penstock pipeline serve");
  return h("ol", { class: "log", tabindex: "0", "aria-label": "Events, newest first" }, [...found].reverse().map((event, place) =>
    h("li", { key: String(found.length - place) }, event.time_ms ? when(event.time_ms) : null,
      definition(Object.entries(event).filter(([name]) => name !== "time_ms").map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)])))));
}

// Declare a pipeline, or change the definition of one; the gateway names each problem of a definition.
async function declare(shown) {
  const values = { name: shown?.name ?? "", text: JSON.stringify(shown ? withoutName(shown.definition) : EXAMPLE, null, 2) };
  const target = () => url(["v1", "pipelines", values.name || "NAME"]);
  const body = () => {
    try {
      return JSON.parse(values.text);
    } catch (error) {
      throw new Error(`The definition is not JSON: ${error.message}`);
    }
  };
  const done = await formDialog({
    title: shown ? `Change ${shown.name}` : "Declare a pipeline", values, label: shown ? "Change" : "Declare",
    fields: (given, update) => [
      shown ? null : field("Name", input(given.name, (value) => { given.name = value; update(); }, { required: true, autofocus: true, autocomplete: "off" })),
      field("Definition: source, schema, transform, dead_letter, target and schedule", h("textarea", { rows: "12", value: given.text, spellcheck: "false", on: { input: (event) => { given.text = event.target.value; update(); } } })),
    ],
    copy: () => ({ method: "PUT", target: target(), body: { definition: "..." }, penstock: ["pipeline", "apply", "-f", "FILE"] }),
    act: async () => request("PUT", target(), body()),
  });
  if (done && !shown) location.hash = `#/pipelines/${encodeURIComponent(values.name)}`;
  return done;
}

const withoutName = ({ name, ...rest }) => rest;

async function remove(shown) {
  const target = url(["v1", "pipelines", shown.name]);
  const done = await confirmAction({
    title: `Delete pipeline ${shown.name}`, name: shown.name, label: "Delete the pipeline",
    loss: `The pipeline stops, and its place in ${sourceOf(shown)} is forgotten. ${targetOf(shown) || "Its targets"} stays as it is. This cannot be undone.`,
    act: () => request("DELETE", target), copy: { method: "DELETE", target, penstock: ["pipeline", "delete", shown.name] },
  });
  if (done) location.hash = "#/pipelines";
}
