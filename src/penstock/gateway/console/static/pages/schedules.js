// Schedules: messages that are sent again and again. Create, pause, resume, run now, delete.

import { get, request, url } from "../api.js";
import { confirmAction, formDialog } from "../dialog.js";
import { count, exact } from "../format.js";
import { h } from "../render.js";
import { guarded, onTopic } from "../rights.js";
import { table, tableState } from "../table.js";
import { badge, button, definition, empty, field, input, link, loading, select, topicLink, when } from "../widgets.js";
import { lineOf, valueLine } from "./queue_text.js";
import { textField } from "./queues.js";

const CATCH_UP = [["none", "none"], ["one", "the last one"], ["all", "all of them"]];

export const schedules = {
  path: "/schedules",
  title: () => "Schedules",
  nav: "Schedules",
  key: "s",
  start(context) {
    const state = { rows: null, table: tableState() };
    const load = async () => (state.rows = (await get("/v1/schedules", context.signal)).schedules);
    context.run(load);
    context.every(3000, load);
    return { view: () => list(state, context, () => context.run(load)) };
  },
};

export const schedule = {
  path: "/schedules/:schedule",
  title: ({ schedule: name }) => name,
  start(context) {
    const name = context.params.schedule;
    const state = { name, shown: null };
    const load = async () => (state.shown = await get(url(["v1", "schedules", name]), context.signal));
    context.run(load);
    context.every(3000, load);
    return { view: () => details(state.shown, () => context.run(load)) };
  },
};

const status = (row) => (row.paused ? badge("paused", "warn") : row.problem ? badge("failing", "bad") : badge("active", "good"));
const timeOrNone = (ms) => (ms === null ? "–" : when(ms));

const COLUMNS = [
  { name: "name", title: "Schedule", class: "name", cell: (row) => link(["schedules", row.name], {}, row.name) },
  { name: "cron", title: "Times", cell: (row) => h("code", null, row.cron) },
  { name: "timezone", title: "Time zone", wide: true, cell: (row) => row.timezone },
  { name: "topic", title: "Topic", cell: (row) => topicLink(row.topic) },
  { name: "state", title: "State", cell: status },
  { name: "next", title: "Next", align: "right", cell: (row) => timeOrNone(row.next_ms) },
  { name: "last", title: "Last", align: "right", wide: true, cell: (row) => timeOrNone(row.last_ms) },
  { name: "fired", title: "Sent", align: "right", wide: true, cell: (row) => count(row.fired) },
  { name: "missed", title: "Missed", align: "right", wide: true, cell: (row) => count(row.missed) },
];

function list(state, context, reload) {
  if (!state.rows) return loading();
  const wanted = (context.query.search || "").toLowerCase();
  const rows = state.rows.filter((row) => `${row.name} ${row.topic}`.toLowerCase().includes(wanted));
  return [
    h("div", { class: "toolbar" },
      input(context.query.search || "", (search) => context.setQuery({ search }), { type: "search", placeholder: "Search schedules", "aria-label": "Search schedules" }),
      h("span", { class: "muted", role: "status" }, `${count(rows.length)} schedules`),
      h("span", { class: "space" }),
      button("Create schedule", () => create().then((done) => done && reload()), { class: "primary" })),
    table({ state: state.table, columns: COLUMNS, rows, rowKey: (row) => row.name, label: "Schedules", update: context.update,
      empty: wanted ? empty("No schedule matches.") : empty("There are no schedules yet.", "A schedule sends a message at its times: penstock schedule create report --cron '0 9 * * MON-FRI' --topic reports --value daily") }),
  ];
}

function details(shown, reload) {
  if (!shown) return loading();
  const needs = [onTopic("WRITE", shown.topic)];
  const act = (verb) => request("POST", url(["v1", "schedules", shown.name, verb])).then(reload);
  return [
    shown.problem ? h("div", { class: "notice bad", role: "alert" }, shown.problem) : null,
    h("div", { class: "toolbar" },
      shown.paused ? guarded("Resume", () => act("resume"), needs, { class: "primary" }) : guarded("Pause", () => act("pause"), needs),
      guarded("Run now", () => act("run"), needs),
      guarded("Delete schedule", () => remove(shown), needs, { class: "danger" })),
    definition([
      ["State", status(shown)],
      ["Times", h("span", null, h("code", null, shown.cron), ` in ${shown.timezone}`)],
      ["Topic", topicLink(shown.topic)],
      ["Key", lineOf(shown, "key")],
      ["Value", valueLine(shown, shown.topic)],
      ["Missed times", (CATCH_UP.find(([name]) => name === shown.catch_up) || ["", shown.catch_up])[1]],
      ["Sent", `${count(shown.fired)}, ${count(shown.missed)} missed`],
      ["Last", timeOrNone(shown.last_ms)],
      ["Next", shown.next_times_ms.length ? h("ul", null, shown.next_times_ms.map((ms) => h("li", { key: String(ms) }, exact(ms)))) : "–"],
    ]),
  ];
}

function body(values) {
  const made = { name: values.name, cron: values.cron, topic: values.topic, catch_up: values.catch_up, value: values.value };
  if (values.timezone) made.timezone = values.timezone;
  if (values.key) made.key = values.key;
  return made;
}

function create() {
  const values = { name: "", cron: "", timezone: "", topic: "", key: "", value: "", catch_up: "one" };
  return formDialog({
    title: "Create a schedule", values, label: "Create",
    fields: (given, update) => [
      textField(given, update, "name", "Name", { required: true, autofocus: true, autocomplete: "off" }),
      textField(given, update, "cron", "Times: cron fields, @daily or @every 90s", { required: true, autocomplete: "off", placeholder: "0 9 * * MON-FRI" }),
      textField(given, update, "timezone", "Time zone (UTC if empty)", { autocomplete: "off", placeholder: "Europe/Berlin" }),
      textField(given, update, "topic", "Topic", { required: true, autocomplete: "off" }),
      textField(given, update, "key", "Key (none if empty)", { autocomplete: "off" }),
      textField(given, update, "value", "Value", { autocomplete: "off" }),
      field("Times missed while the cluster was down are made up for", select(given.catch_up, CATCH_UP, (value) => { given.catch_up = value; update(); })),
    ],
    copy: (given) => {
      const made = body(given);
      return { method: "POST", target: "/v1/schedules", body: made, penstock: ["schedule", "create", made.name || "NAME", "--cron", made.cron, ...(made.timezone ? ["--timezone", made.timezone] : []), "--topic", made.topic, ...(made.key ? ["--key", made.key] : []), "--value", made.value, "--catch-up", made.catch_up] };
    },
    act: (given) => request("POST", "/v1/schedules", body(given)),
  });
}

async function remove(shown) {
  const target = url(["v1", "schedules", shown.name]);
  const done = await confirmAction({
    title: `Delete schedule ${shown.name}`, name: shown.name, label: "Delete the schedule",
    loss: `No more messages are sent to ${shown.topic}. Messages that were sent stay. This cannot be undone.`,
    act: () => request("DELETE", target), copy: { method: "DELETE", target, penstock: ["schedule", "delete", shown.name] },
  });
  if (done) location.hash = "#/schedules";
}
