// Users, rules of access, quotas and refused requests, each in a tab with its own address.

import { get } from "../api.js";
import { count } from "../format.js";
import { table, tableState } from "../table.js";
import { empty, loading, tabs, when } from "../widgets.js";
import { quotasTab } from "./access_quotas.js";
import { rulesTab } from "./access_rules.js";
import { usersTab } from "./access_users.js";

const TABS = [["users", "Users"], ["rules", "Rules"], ["quotas", "Quotas"], ["refused", "Refused"]];
const SOURCES = { users: ["/v1/users", "users"], rules: ["/v1/acls", "rules"], quotas: ["/v1/quotas", "quotas"], refused: ["/v1/acls/refusals", "refusals"] };

export const access = {
  path: "/access",
  title: () => "Access",
  nav: "Access",
  key: "a",
  start(context) {
    const tab = TABS.some(([each]) => each === context.query.tab) ? context.query.tab : "users";
    const state = { tab, mode: "", rows: null, table: tableState(), question: { user: "", operation: "READ", resource_type: "TOPIC", name: "" }, answer: null };
    const [target, name] = SOURCES[tab];
    const load = async () => {
      if (tab === "rules") state.mode = (await get("/v1/acls/refusals", context.signal)).mode;
      state.rows = state.mode === "off" ? [] : (await get(target, context.signal))[name];
    };
    context.run(load);
    return { view: () => [tabs(["access"], tab, TABS), content(state, context, () => context.run(load))] };
  },
};

function content(state, context, reload) {
  if (!state.rows) return loading();
  const show = { users: usersTab, rules: rulesTab, quotas: quotasTab, refused }[state.tab];
  return show(state, context, reload);
}

function refused(state, context) {
  const columns = [
    { name: "principal", title: "User", class: "name", cell: (row) => row.principal.replace(/^User:/, "") },
    { name: "operation", title: "Operation", cell: (row) => row.operation },
    { name: "resource", title: "Resource", cell: (row) => `${row.resource_type.toLowerCase()} ${row.name}` },
    { name: "host", title: "Host", wide: true, cell: (row) => row.host },
    { name: "count", title: "Requests", align: "right", cell: (row) => count(row.count) },
    { name: "last", title: "Last", align: "right", cell: (row) => when(row.last_ms) },
  ];
  return table({ state: state.table, columns, rows: state.rows, rowKey: (row) => JSON.stringify(row), label: "Refused requests", update: context.update, empty: empty("No request was refused since the brokers started.") });
}
