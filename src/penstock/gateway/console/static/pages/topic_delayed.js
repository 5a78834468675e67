// The tab of a topic with its messages that are not due yet, and the way to cancel one.

import { get, request, url } from "../api.js";
import { confirmAction } from "../dialog.js";
import { count, exact } from "../format.js";
import { h } from "../render.js";
import { table, tableState } from "../table.js";
import { button, empty, loading, when } from "../widgets.js";

export function delayedTab(context, name) {
  const state = { name, found: null, isDelayTopic: true, table: tableState() };
  const load = async () => {
    try {
      state.found = await get(url(["v1", "topics", name, "delayed"], { limit: 200 }), context.signal);
    } catch (problem) {
      if (problem.status !== 400) throw problem;
      state.isDelayTopic = false;
    }
  };
  context.run(load);
  context.every(3000, load);
  return { view: () => view(state, context, () => context.run(load)) };
}

function view(state, context, reload) {
  if (!state.isDelayTopic) return empty("Messages of this topic are not delayed.", "A topic is created with delays: penstock topic create NAME --config delivery.delay=true");
  if (!state.found) return loading();
  const columns = [
    { name: "id", title: "Message", cell: (row) => row.id },
    { name: "due", title: "Due", cell: (row) => when(row.due_ms) },
    { name: "time", title: "Time", wide: true, cell: (row) => exact(row.due_ms) },
    { name: "cancel", title: "Actions", isHidden: true, align: "right", cell: (row) => button("Cancel", () => cancel(state.name, row).then((done) => done && reload()), { class: "plain", title: `Cancel ${row.id}` }) },
  ];
  return [
    h("p", { class: "muted", role: "status" }, `${count(state.found.count)} messages are not due yet${state.found.messages.length < state.found.count ? `; the next ${count(state.found.messages.length)} are shown` : ""}.`),
    table({ state: state.table, columns, rows: state.found.messages, rowKey: (row) => row.id, label: "Delayed messages", update: context.update,
      empty: empty("No message waits.", `Send one: penstock produce ${state.name} --delay 10m`) }),
  ];
}

function cancel(name, row) {
  const target = url(["v1", "topics", name, "delayed", row.id]);
  return confirmAction({
    title: `Cancel message ${row.id}`, label: "Cancel the message",
    loss: `The message that is due at ${exact(row.due_ms)} is never delivered. This cannot be undone.`,
    act: () => request("DELETE", target), copy: { method: "DELETE", target, penstock: ["delayed", "cancel", name, row.id] },
  });
}
