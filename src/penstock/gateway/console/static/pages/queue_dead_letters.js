// The dead letters of a queue: why each message failed, sending them back, and removing them.

import { get, request, url } from "../api.js";
import { confirmAction, formDialog } from "../dialog.js";
import { count } from "../format.js";
import { h } from "../render.js";
import { guarded, onGroup } from "../rights.js";
import { table, tableState } from "../table.js";
import { badge, button, empty, input, loading, topicLink, when } from "../widgets.js";
import { lineOf, valueLine } from "./queue_text.js";
import { textField } from "./queues.js";

const SHOWN = 200;

export function deadLettersTab(context, name) {
  const state = { name, letters: null, table: tableState() };
  const load = async () => {
    try {
      state.letters = await get(url(["v1", "queues", name, "dead-letters"], { max: SHOWN, filter: context.query.filter || "" }), context.signal);
    } catch (problem) {
      if (problem.status !== 404) throw problem;
      state.letters = { topic: "", messages: [] };
    }
  };
  context.run(load);
  return { view: () => view(state, context, () => context.run(load)) };
}

const columns = (topic) => [
  { name: "id", title: "Dead letter", cell: (row) => row.id },
  { name: "when", title: "Time", wide: true, cell: (row) => when(row.timestamp_ms) },
  { name: "reason", title: "Reason", cell: (row) => h("span", { title: row.detail }, badge(row.reason, "warn")) },
  { name: "attempts", title: "Attempts", align: "right", cell: (row) => count(row.attempts) },
  { name: "origin", title: "Origin", wide: true, cell: (row) => row.origin },
  { name: "key", title: "Key", wide: true, cell: (row) => lineOf(row, "key") },
  { name: "value", title: "Value", class: "name", cell: (row) => valueLine(row, topic) },
];

function view(state, context, reload) {
  if (!state.letters) return loading();
  const { name, letters } = state;
  if (!letters.topic) return empty("This queue has no topic for dead letters.", `Rejected messages are dropped. Set one with: penstock queue alter ${name} --dead-letter ${name}-dead`);
  const rows = letters.messages;
  const find = (filter) => {
    context.setQuery({ filter });
    reload();
  };
  return [
    h("div", { class: "toolbar" },
      input(context.query.filter || "", find, { type: "search", placeholder: 'Filter, such as json.total > 100', "aria-label": "Filter dead letters" }),
      h("span", { class: "muted", role: "status" }, rows.length >= SHOWN ? `the first ${count(SHOWN)}` : `${count(rows.length)} in `, rows.length >= SHOWN ? " of " : null, topicLink(letters.topic)),
      h("span", { class: "space" }),
      guarded("Redrive", () => redrive(name, context.query.filter || "").then((done) => done && reload()), [onGroup("READ", name)], { class: "primary", disabled: rows.length === 0 }),
      guarded("Purge", () => purge(name, letters).then((done) => done && reload()), [onGroup("READ", name)], { class: "danger", disabled: rows.length === 0 })),
    table({ state: state.table, columns: columns(letters.topic), rows, rowKey: (row) => row.id, label: "Dead letters", update: context.update,
      empty: context.query.filter ? empty("No dead letter matches.") : empty("There are no dead letters.", "Messages come here when they are rejected or have used up their attempts.") }),
  ];
}

function redrive(name, filter) {
  const target = url(["v1", "queues", name, "redrives"]);
  const values = { filter, to: "", rate: "", selected: "" };
  const body = (given) => ({ ...(given.filter ? { filter: given.filter } : {}), ...(given.to ? { to: given.to } : {}), ...(given.rate ? { rate: Number(given.rate) } : {}) });
  const look = async (given, update) => {
    try {
      const { selected, to } = await request("POST", target, { ...body(given), dry_run: true });
      given.selected = `${count(selected)} messages would be sent to ${to}.`;
    } catch (problem) {
      given.selected = problem.message;
    }
    update();
  };
  return formDialog({
    title: `Redrive dead letters of ${name}`, values, label: "Redrive",
    fields: (given, update) => [
      textField(given, update, "filter", "Filter (all dead letters if empty)", { autocomplete: "off" }),
      textField(given, update, "to", "Topic to send to (that of the queue if empty)", { autocomplete: "off" }),
      textField(given, update, "rate", "Messages per second (as fast as possible if empty)", { type: "number", min: "0" }),
      h("p", null, button("Count them first", () => look(given, update)), " ", h("span", { role: "status" }, given.selected)),
    ],
    copy: (given) => ({ method: "POST", target, body: body(given), penstock: ["dead-letters", "redrive", name, ...(given.filter ? ["--filter", given.filter] : []), ...(given.to ? ["--to", given.to] : []), ...(given.rate ? ["--rate", given.rate] : [])] }),
    act: (given) => request("POST", target, body(given)),
  });
}

function purge(name, letters) {
  const target = url(["v1", "queues", name, "dead-letters", "purge"]);
  return confirmAction({
    title: `Purge the dead letters of ${name}`, name, label: "Purge the dead letters",
    loss: `All dead letters of this queue in ${letters.topic} are removed. They cannot be redriven any more. This cannot be undone.`,
    act: () => request("POST", target), copy: { method: "POST", target, penstock: ["dead-letters", "purge", name] },
  });
}
