// One queue: depth, messages that are not settled, partitions, dead letters, and what can be done with them.

import { get, request, url } from "../api.js";
import { confirmAction, formDialog } from "../dialog.js";
import { count, duration } from "../format.js";
import { h } from "../render.js";
import { guarded, onGroup, onTopic } from "../rights.js";
import { table, tableState } from "../table.js";
import { card, definition, empty, field, link, loading, tabs, topicLink, when } from "../widgets.js";
import { deadLettersTab } from "./queue_dead_letters.js";
import { queueSettings, settingFields, settingOptions, textField } from "./queues.js";
import { lineOf, valueLine } from "./queue_text.js";

const TABS = [["messages", "Messages"], ["partitions", "Partitions"], ["dead-letters", "Dead letters"], ["settings", "Settings"]];
const PEEKED = 50;

export const queue = {
  path: "/queues/:queue",
  title: ({ queue: name }) => name,
  start(context) {
    const name = context.params.queue;
    const tab = TABS.some(([each]) => each === context.query.tab) ? context.query.tab : "messages";
    const state = { name, tab, queue: null, messages: null, partitions: tableState(), peeked: tableState() };
    const inner = tab === "dead-letters" ? deadLettersTab(context, name) : null;
    const load = async () => {
      state.queue = await get(url(["v1", "queues", name]), context.signal);
      if (tab === "messages") state.messages = (await get(url(["v1", "queues", name, "peek"], { max: PEEKED }), context.signal)).messages;
    };
    context.run(load);
    context.every(2000, load);
    return { view: () => view(state, context, inner, () => context.run(load)) };
  },
};

function view(state, context, inner, reload) {
  const { queue: shown, name, tab } = state;
  if (!shown) return loading();
  return [
    h("div", { class: "cards" },
      card("Depth", count(shown.depth), "messages that are not settled"),
      card("In flight", count(shown.in_flight), "locked by a consumer"),
      card("Delayed", count(shown.delayed), "wait for their next attempt"),
      card("Oldest", shown.oldest_age_ms === null ? "–" : duration(shown.oldest_age_ms), "age of the oldest message")),
    h("div", { class: "toolbar" },
      guarded("Send", () => send(name).then((done) => done && reload()), [onTopic("WRITE", shown.of || shown.topic)], { class: "primary" }),
      guarded("Purge", () => purge(name, shown).then((done) => done && reload()), [onGroup("READ", name)]),
      guarded("Delete queue", () => remove(name, shown), [onGroup("DELETE", name)], { class: "danger" })),
    tabs(["queues", name], tab, TABS),
    inner ? inner.view(shown) : content(state, context, reload),
  ];
}

const PARTITIONS = [
  { name: "partition", title: "Partition", align: "right", cell: (row) => String(row.partition) },
  { name: "start", title: "Start offset", align: "right", wide: true, cell: (row) => (row.start_offset === null ? "–" : count(row.start_offset)) },
  { name: "depth", title: "Depth", align: "right", cell: (row) => (row.depth === null ? "–" : count(row.depth)) },
  { name: "in_flight", title: "In flight", align: "right", cell: (row) => count(row.in_flight) },
  { name: "released", title: "To deliver again", align: "right", wide: true, cell: (row) => count(row.released) },
  { name: "delayed", title: "Delayed", align: "right", cell: (row) => count(row.delayed) },
];

const messageColumns = (topic) => [
  { name: "place", title: "Partition, offset", cell: (row) => `${row.partition}-${row.offset}` },
  { name: "time", title: "Time", wide: true, cell: (row) => when(row.timestamp_ms) },
  { name: "attempt", title: "Attempts", align: "right", cell: (row) => count(row.attempt) },
  { name: "key", title: "Key", wide: true, cell: (row) => lineOf(row, "key") },
  { name: "value", title: "Value", class: "name", cell: (row) => valueLine(row, topic) },
];

function content(state, context, reload) {
  const { queue: shown, tab, messages, name } = state;
  if (tab === "partitions") return table({ state: state.partitions, columns: PARTITIONS, rows: shown.partitions, rowKey: (row) => String(row.partition), label: "Partitions", update: context.update });
  if (tab === "settings") return settings(shown, reload);
  if (!messages) return loading();
  return [
    h("p", { class: "muted" }, `The oldest ${PEEKED} messages that are not settled. Looking at them does not receive them.`),
    table({ state: state.peeked, columns: messageColumns(shown.of || shown.topic), rows: messages, rowKey: (row) => `${row.partition}-${row.offset}`, label: "Messages", update: context.update,
      empty: empty("The queue is empty.", `Send a message here, or with: penstock queue send ${name} hello`) }),
  ];
}

function settings(shown, reload) {
  return [
    definition([
      ["Topic", topicLink(shown.of || shown.topic)],
      ["Filter", shown.filter ? h("code", null, shown.filter) : "all messages"],
      ["Share group", link(["groups", shown.name], {}, shown.name)],
      ["Lock", `${shown.lock_s} s`],
      ["Attempts", count(shown.max_attempts)],
      ["Back-off", shown.back_off || "none"],
      ["Dead letters", shown.dead_letter ? topicLink(shown.dead_letter) : "none: rejected messages are dropped"],
    ]),
    h("div", { class: "toolbar" }, guarded("Change settings", () => alter(shown).then((done) => done && reload()), [onGroup("ALTER_CONFIGS", shown.name)])),
  ];
}

function alter(shown) {
  const target = url(["v1", "queues", shown.name]);
  const values = { lock_s: String(shown.lock_s), max_attempts: String(shown.max_attempts), back_off: shown.back_off, dead_letter: shown.dead_letter };
  const body = (given) => ({ ...queueSettings(given), ...(given.back_off ? {} : { back_off: null }), ...(given.dead_letter ? {} : { dead_letter: null }) });
  return formDialog({
    title: `Settings of ${shown.name}`, values, label: "Change", fields: settingFields,
    copy: (given) => ({ method: "PATCH", target, body: body(given), penstock: ["queue", "alter", shown.name, ...settingOptions(queueSettings(given))] }),
    act: (given) => request("PATCH", target, body(given)),
  });
}

function send(name) {
  const target = url(["v1", "queues", name, "messages"]);
  const values = { value: "", key: "" };
  const body = (given) => ({ messages: [{ value: given.value, ...(given.key ? { key: given.key } : {}) }] });
  return formDialog({
    title: `Send to ${name}`, values, label: "Send",
    fields: (given, update) => [
      field("Value", h("textarea", { rows: "6", value: given.value, autofocus: true, on: { input: (event) => { given.value = event.target.value; update(); } } })),
      textField(given, update, "key", "Key (none if empty)", { autocomplete: "off" }),
    ],
    copy: (given) => ({ method: "POST", target, body: body(given), penstock: ["queue", "send", name, given.value, ...(given.key ? ["--key", given.key] : [])] }),
    act: (given) => request("POST", target, body(given)),
  });
}

function purge(name, shown) {
  const target = url(["v1", "queues", name, "purge"]);
  return confirmAction({
    title: `Purge ${name}`, name, label: "Purge the queue",
    loss: `${count(shown.depth)} messages are settled without being delivered. No consumer of this queue gets them any more; other queues and groups of the topic keep them. This cannot be undone.`,
    act: () => request("POST", target), copy: { method: "POST", target, penstock: ["queue", "purge", name] },
  });
}

async function remove(name, shown) {
  const target = url(["v1", "queues", name]);
  const own = !shown.of && shown.topic === name;
  const done = await confirmAction({
    title: `Delete queue ${name}`, name, label: "Delete the queue",
    loss: own ? `The queue and its topic are deleted with ${count(shown.depth)} messages that are not settled. This cannot be undone.`
      : `The queue forgets which messages it has settled; ${count(shown.depth)} are not. The topic ${shown.of || shown.topic} keeps its messages. This cannot be undone.`,
    act: () => request("DELETE", target), copy: { method: "DELETE", target, penstock: ["queue", "delete", name] },
  });
  if (done) location.hash = "#/queues";
}
