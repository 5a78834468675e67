// The Kafka connections of clients, with the way to close one.

import { get, request, url } from "../api.js";
import { confirmAction } from "../dialog.js";
import { bytes, byteRate, count, duration } from "../format.js";
import { h } from "../render.js";
import { guarded, onCluster } from "../rights.js";
import { table, tableState } from "../table.js";
import { badge, empty, input, loading } from "../widgets.js";

export const connections = {
  path: "/connections",
  title: () => "Connections",
  nav: "Connections",
  key: "n",
  start(context) {
    const state = { rows: null, total: 0, before: new Map(), at: 0, table: tableState() };
    const load = async () => {
      const found = await get("/v1/connections", context.signal);
      const now = performance.now();
      state.rows = found.connections.map((row) => withRates(row, state.before.get(row.id), (now - state.at) / 1000));
      state.before = new Map(found.connections.map((row) => [row.id, row]));
      state.at = now;
      state.total = found.total;
    };
    context.run(load);
    context.every(3000, load);
    return { view: () => view(state, context, () => context.run(load)) };
  },
};

function withRates(row, before, seconds) {
  if (!before || seconds <= 0) return { ...row, received_rate: null, sent_rate: null };
  return { ...row, received_rate: (row.received_bytes - before.received_bytes) / seconds, sent_rate: (row.sent_bytes - before.sent_bytes) / seconds };
}

function view(state, context, reload) {
  if (!state.rows) return loading();
  const words = (context.query.search || "").toLowerCase().split(/\s+/).filter(Boolean);
  const rows = state.rows.filter((row) => words.every((word) => `${row.client_id} ${row.software} ${row.principal} ${row.address}`.toLowerCase().includes(word)));
  const columns = [
    { name: "client", title: "Client id", class: "name", cell: (row) => [row.client_id || h("span", { class: "muted" }, "none"), row.is_broker ? badge("broker") : null] },
    { name: "software", title: "Software", wide: true, cell: (row) => row.software || "–" },
    { name: "principal", title: "User", wide: true, cell: (row) => row.principal },
    { name: "address", title: "Address", cell: (row) => row.address },
    { name: "broker", title: "Broker", align: "right", wide: true, cell: (row) => String(row.broker) },
    { name: "age", title: "Open", align: "right", cell: (row) => duration(row.age_seconds * 1000) },
    { name: "in", title: "Received", align: "right", wide: true, cell: (row) => h("span", { title: bytes(row.received_bytes) }, byteRate(row.received_rate)) },
    { name: "out", title: "Sent", align: "right", wide: true, cell: (row) => h("span", { title: bytes(row.sent_bytes) }, byteRate(row.sent_rate)) },
    { name: "close", title: "Actions", isHidden: true, align: "right", cell: (row) => guarded("Close", () => close(row).then((done) => done && reload()), [onCluster("ALTER")], { class: "plain", title: `Close the connection of ${row.client_id || row.address}` }) },
  ];
  return [
    h("div", { class: "toolbar" },
      input(context.query.search || "", (search) => context.setQuery({ search }), { type: "search", placeholder: "Search connections", "aria-label": "Search connections" }),
      h("span", { class: "muted", role: "status" }, `${count(rows.length)} of ${count(state.total)} connections`)),
    table({ state: state.table, columns, rows, rowKey: (row) => row.id, label: "Connections", update: context.update, empty: empty("No connection matches.") }),
  ];
}

function close(row) {
  const target = url(["v1", "connections", row.id]);
  return confirmAction({
    title: "Close a connection", label: "Close the connection",
    loss: `${row.client_id || "The client"} at ${row.address} loses its connection to broker ${row.broker}. Requests in progress get no answer and may be sent again. A client that still runs connects again at once.`,
    act: () => request("DELETE", target), copy: { method: "DELETE", target, penstock: ["connection", "close", row.id] },
  });
}
