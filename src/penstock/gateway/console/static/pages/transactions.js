// Transactional ids with the state of their transactions, and the abort of an open one.

import { get, request, url } from "../api.js";
import { confirmAction } from "../dialog.js";
import { count } from "../format.js";
import { h } from "../render.js";
import { guarded, onTransaction } from "../rights.js";
import { table, tableState } from "../table.js";
import { empty, input, loading, state as badgeOf } from "../widgets.js";

export const transactions = {
  path: "/transactions",
  title: () => "Transactions",
  nav: "Transactions",
  key: "x",
  start(context) {
    const state = { rows: null, table: tableState() };
    const load = async () => (state.rows = (await get("/v1/transactions", context.signal)).transactions);
    context.run(load);
    context.every(3000, load);
    return { view: () => view(state, context, () => context.run(load)) };
  },
};

function view(state, context, reload) {
  if (!state.rows) return loading();
  const wanted = (context.query.search || "").toLowerCase();
  const rows = state.rows.filter((row) => row.transactional_id.toLowerCase().includes(wanted)).sort((left, right) => Number(right.state === "Ongoing") - Number(left.state === "Ongoing"));
  const columns = [
    { name: "id", title: "Transactional id", class: "name", cell: (row) => row.transactional_id },
    { name: "state", title: "State", cell: (row) => badgeOf(row.state) },
    { name: "producer", title: "Producer id", align: "right", wide: true, cell: (row) => String(row.producer_id) },
    { name: "abort", title: "Actions", isHidden: true, align: "right", cell: (row) => (row.state === "Ongoing" ? guarded("Abort", () => abort(row).then((done) => done && reload()), [onTransaction("WRITE", row.transactional_id)], { class: "plain", title: `Abort ${row.transactional_id}` }) : null) },
  ];
  return [
    h("div", { class: "toolbar" },
      input(context.query.search || "", (search) => context.setQuery({ search }), { type: "search", placeholder: "Search transactional ids", "aria-label": "Search transactional ids" }),
      h("span", { class: "muted", role: "status" }, `${count(rows.filter((row) => row.state === "Ongoing").length)} open of ${count(rows.length)}`)),
    table({ state: state.table, columns, rows, rowKey: (row) => row.transactional_id, label: "Transactions", update: context.update, empty: empty("There are no transactions.", "Producers with a transactional.id appear here.") }),
  ];
}

function abort(row) {
  const target = url(["v1", "transactions", row.transactional_id, "abort"]);
  return confirmAction({
    title: "Abort a transaction", name: row.transactional_id, label: "Abort the transaction",
    loss: "No reader of committed messages will see the messages of this transaction, and the offsets that it was to commit are not committed. Its producer is fenced and has to start again.",
    act: () => request("POST", target), copy: { method: "POST", target, penstock: ["transaction", "abort", row.transactional_id] },
  });
}
