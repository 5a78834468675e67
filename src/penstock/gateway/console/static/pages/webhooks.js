// Webhooks: receivers that are called for the messages of a queue. Create, test, pause, resume, delete.

import { get, request, url } from "../api.js";
import { confirmAction, formDialog, openDialog } from "../dialog.js";
import { count } from "../format.js";
import { h } from "../render.js";
import { table, tableState } from "../table.js";
import { badge, button, card, definition, empty, input, link, loading, when } from "../widgets.js";
import { textField } from "./queues.js";

export const webhooks = {
  path: "/webhooks",
  title: () => "Webhooks",
  nav: "Webhooks",
  key: "w",
  start(context) {
    const state = { rows: null, table: tableState() };
    const load = async () => (state.rows = (await get("/v1/webhooks", context.signal)).webhooks);
    context.run(load);
    context.every(3000, load);
    return { view: () => list(state, context, () => context.run(load)) };
  },
};

export const webhook = {
  path: "/webhooks/:webhook",
  title: ({ webhook: name }) => name,
  start(context) {
    const name = context.params.webhook;
    const state = { shown: null, tested: "" };
    const load = async () => (state.shown = await get(url(["v1", "webhooks", name]), context.signal));
    context.run(load);
    context.every(2000, load);
    return { view: () => details(state, context, () => context.run(load)) };
  },
};

const status = (row) => (row.paused ? h("span", { title: row.paused_reason }, badge("paused", "warn")) : badge("active", "good"));
const queueLink = (name) => link(["queues", name], {}, name);

const COLUMNS = [
  { name: "name", title: "Webhook", class: "name", cell: (row) => link(["webhooks", row.name], {}, row.name) },
  { name: "queue", title: "Queue", cell: (row) => queueLink(row.queue) },
  { name: "url", title: "Receiver", cell: (row) => h("code", null, row.url) },
  { name: "state", title: "State", cell: status },
  { name: "concurrency", title: "Calls at a time", align: "right", wide: true, cell: (row) => count(row.concurrency) },
  { name: "owner", title: "Broker", align: "right", wide: true, cell: (row) => (row.owner < 0 ? "–" : String(row.owner)) },
];

function list(state, context, reload) {
  if (!state.rows) return loading();
  const wanted = (context.query.search || "").toLowerCase();
  const rows = state.rows.filter((row) => `${row.name} ${row.queue} ${row.url}`.toLowerCase().includes(wanted));
  return [
    h("div", { class: "toolbar" },
      input(context.query.search || "", (search) => context.setQuery({ search }), { type: "search", placeholder: "Search webhooks", "aria-label": "Search webhooks" }),
      h("span", { class: "muted", role: "status" }, `${count(rows.length)} webhooks`),
      h("span", { class: "space" }),
      button("Create webhook", () => create().then((done) => done && reload()), { class: "primary" })),
    table({ state: state.table, columns: COLUMNS, rows, rowKey: (row) => row.name, label: "Webhooks", update: context.update,
      empty: wanted ? empty("No webhook matches.") : empty("There are no webhooks yet.", "A webhook calls a receiver for each message: penstock webhook create invoices --queue invoices --url https://example.org/hook") }),
  ];
}

function details(state, context, reload) {
  const { shown } = state;
  if (!shown) return loading();
  const act = (verb) => context.run(() => request("POST", url(["v1", "webhooks", shown.name, verb])).then(reload));
  const test = () => context.run(async () => {
    const found = await request("POST", url(["v1", "webhooks", shown.name, "test"]));
    state.tested = found.ok ? `The receiver answered ${found.status} after ${Math.round(found.latency_ms)} ms.` : `The receiver failed: ${found.error || found.status}`;
  });
  return [
    shown.problem ? h("div", { class: "notice bad", role: "alert" }, shown.problem) : null,
    h("div", { class: "cards" },
      card("Accepted", count(shown.successes), "calls with an answer 2xx"),
      card("Failed", count(shown.failures), "calls that are repeated later"),
      card("In flight", count(shown.in_flight), `at most ${count(shown.concurrency)}`),
      card("Last call", shown.last_call_ms === null ? "–" : when(shown.last_call_ms), shown.last_error || (shown.last_status === null ? "" : `answer ${shown.last_status}`))),
    h("div", { class: "toolbar" },
      shown.paused ? button("Resume", () => act("resume"), { class: "primary" }) : button("Pause", () => act("pause")),
      button("Test", test), h("span", { role: "status" }, state.tested), h("span", { class: "space" }),
      button("Delete webhook", () => remove(shown), { class: "danger" })),
    definition([
      ["State", shown.paused && shown.paused_reason ? h("span", null, status(shown), ` ${shown.paused_reason}`) : status(shown)],
      ["Receiver", h("code", null, shown.url)],
      ["Queue", queueLink(shown.queue)],
      ["Filter", shown.filter ? h("code", null, shown.filter) : "all messages"],
      ["Body", shown.format === "cloudevent" ? "CloudEvent" : "as stored"],
      ["Timeout", `${shown.timeout_s} s`],
      ["Secrets", shown.secrets > 1 ? "two, during a rotation" : "one; it is not shown again"],
    ]),
  ];
}

function body(values) {
  const made = { name: values.name, url: values.url };
  if (values.topic) made.topic = values.topic;
  else made.queue = values.queue;
  if (values.topic && values.filter) made.filter = values.filter;
  return made;
}

async function create() {
  const values = { name: "", url: "", queue: "", topic: "", filter: "" };
  const made = await formDialog({
    title: "Create a webhook", values, label: "Create",
    fields: (given, update) => [
      textField(given, update, "name", "Name", { required: true, autofocus: true, autocomplete: "off" }),
      textField(given, update, "url", "URL of the receiver", { type: "url", required: true, autocomplete: "off" }),
      given.topic ? null : textField(given, update, "queue", "Queue", { autocomplete: "off" }),
      given.queue ? null : textField(given, update, "topic", "or topic, of which new messages are sent", { autocomplete: "off" }),
      given.topic ? textField(given, update, "filter", "Filter (all messages if empty)", { autocomplete: "off" }) : null,
    ],
    copy: (given) => {
      const sent = body(given);
      return { method: "POST", target: "/v1/webhooks", body: sent, penstock: ["webhook", "create", sent.name || "NAME", ...(sent.topic ? ["--topic", sent.topic] : ["--queue", sent.queue || "QUEUE"]), ...(sent.filter ? ["--filter", sent.filter] : []), "--url", sent.url || "URL"] };
    },
    act: (given) => request("POST", "/v1/webhooks", body(given)),
  });
  if (made && made.secret) await showSecret(made);
  return made;
}

function showSecret(made) {
  return openDialog("Secret of the webhook", (close) => [
    h("p", null, "The receiver checks signatures with this secret. It is not shown again."),
    h("p", null, h("code", null, made.secret)),
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary", on: { click: () => close(true) } }, "I have copied it")),
  ]);
}

async function remove(shown) {
  const target = url(["v1", "webhooks", shown.name]);
  const done = await confirmAction({
    title: `Delete webhook ${shown.name}`, name: shown.name, label: "Delete the webhook",
    loss: shown.topic ? `Calls end, and the queue ${shown.queue} is deleted with the messages that it has not delivered. The topic ${shown.topic} keeps its messages. This cannot be undone.` : `Calls end. The queue ${shown.queue} keeps its messages. This cannot be undone.`,
    act: () => request("DELETE", target), copy: { method: "DELETE", target, penstock: ["webhook", "delete", shown.name] },
  });
  if (done) location.hash = "#/webhooks";
}
