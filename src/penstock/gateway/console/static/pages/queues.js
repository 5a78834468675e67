// The list of queues, and the creation of one.

import { get, request } from "../api.js";
import { formDialog } from "../dialog.js";
import { count } from "../format.js";
import { h } from "../render.js";
import { address } from "../router.js";
import { table, tableState } from "../table.js";
import { button, empty, field, input, link, loading, topicLink } from "../widgets.js";

const COLUMNS = [
  { name: "name", title: "Queue", class: "name", cell: (row) => link(["queues", row.name], {}, row.name) },
  { name: "topic", title: "Topic", cell: (row) => topicLink(row.of || row.topic) },
  { name: "filter", title: "Filter", wide: true, cell: (row) => (row.filter ? h("code", null, row.filter) : "–") },
  { name: "lock", title: "Lock", align: "right", cell: (row) => `${row.lock_s} s` },
  { name: "attempts", title: "Attempts", align: "right", wide: true, cell: (row) => count(row.max_attempts) },
  { name: "back_off", title: "Back-off", wide: true, cell: (row) => row.back_off || "none" },
  { name: "dead", title: "Dead letters", wide: true, cell: (row) => (row.dead_letter ? topicLink(row.dead_letter) : "–") },
];

export const queues = {
  path: "/queues",
  title: () => "Queues",
  nav: "Queues",
  key: "q",
  start(context) {
    const state = { rows: null, table: tableState() };
    const load = async () => (state.rows = (await get("/v1/queues", context.signal)).queues);
    context.run(load);
    context.every(5000, load);
    return { view: () => view(state, context) };
  },
};

function view(state, context) {
  if (!state.rows) return loading();
  const wanted = (context.query.search || "").toLowerCase();
  const rows = state.rows.filter((row) => row.name.toLowerCase().includes(wanted));
  return [
    h("div", { class: "toolbar" },
      input(context.query.search || "", (search) => context.setQuery({ search }), { type: "search", placeholder: "Search queues", "aria-label": "Search queues" }),
      h("span", { class: "muted", role: "status" }, `${count(rows.length)} queues`),
      h("span", { class: "space" }),
      button("Create queue", () => create(), { class: "primary" })),
    table({ state: state.table, columns: COLUMNS, rows, rowKey: (row) => row.name, label: "Queues", update: context.update,
      empty: wanted ? empty("No queue has this name.", "Search for a part of the name, or create the queue.") : empty("There are no queues yet.", "Create one here, or with: penstock queue create orders") }),
  ];
}

// The settings of a queue that a form has, as a request has them. Pure.
export function queueSettings(values) {
  const made = {};
  if (values.lock_s) made.lock_s = Number(values.lock_s);
  if (values.max_attempts) made.max_attempts = Number(values.max_attempts);
  if (values.back_off) made.back_off = values.back_off;
  if (values.dead_letter) made.dead_letter = values.dead_letter;
  return made;
}

export function settingFields(given, update) {
  return [
    textField(given, update, "lock_s", "Lock in seconds: how long a consumer may work on a message", { type: "number", min: "1" }),
    textField(given, update, "max_attempts", "Attempts before a message is a dead letter", { type: "number", min: "1" }),
    textField(given, update, "back_off", "Back-off, such as 1s,10s,1m or exponential:1s:10m", { autocomplete: "off" }),
    textField(given, update, "dead_letter", "Topic for dead letters", { autocomplete: "off" }),
  ];
}

export function textField(given, update, name, label, attributes) {
  return field(label, input(given[name], (value) => { given[name] = value; update(); }, attributes));
}

// The options of the `penstock queue` command for settings of a queue. Pure.
export function settingOptions(settings) {
  return [
    ...(settings.lock_s ? ["--lock", `${settings.lock_s}s`] : []),
    ...(settings.max_attempts ? ["--max-attempts", settings.max_attempts] : []),
    ...(settings.back_off ? ["--back-off", settings.back_off] : []),
    ...(settings.dead_letter ? ["--dead-letter", settings.dead_letter] : []),
  ];
}

function body(values) {
  const made = { name: values.name, ...queueSettings(values) };
  if (values.of) made.of = values.of;
  else if (values.partitions) made.partitions = Number(values.partitions);
  if (values.of && values.filter) made.filter = values.filter;
  return made;
}

async function create() {
  const values = { name: "", of: "", filter: "", partitions: "", lock_s: "", max_attempts: "", back_off: "", dead_letter: "" };
  const done = await formDialog({
    title: "Create a queue", values, label: "Create",
    fields: (given, update) => [
      textField(given, update, "name", "Name", { required: true, autofocus: true, autocomplete: "off" }),
      textField(given, update, "of", "Existing topic to read (a topic of its own if empty)", { autocomplete: "off" }),
      given.of ? textField(given, update, "filter", "Filter (all messages if empty)", { autocomplete: "off", placeholder: 'headers.region == "eu"' })
        : textField(given, update, "partitions", "Partitions (default of the broker if empty)", { type: "number", min: "1" }),
      settingFields(given, update),
    ],
    copy: (given) => {
      const made = body(given);
      const words = [...(made.of ? ["--of", made.of] : []), ...(made.filter ? ["--filter", made.filter] : []), ...(made.partitions ? ["--partitions", made.partitions] : [])];
      return { method: "POST", target: "/v1/queues", body: made, penstock: ["queue", "create", given.name || "NAME", ...words, ...settingOptions(made)] };
    },
    act: (given) => request("POST", "/v1/queues", body(given)),
  });
  if (done) location.hash = address(["queues", values.name]);
}
