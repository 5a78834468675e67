// Users, rules of access and quotas, and the question whether a user may do something.

import { get, request, url } from "../api.js";
import { confirmAction, formDialog } from "../dialog.js";
import { count } from "../format.js";
import { h } from "../render.js";
import { table, tableState } from "../table.js";
import { badge, button, empty, field, input, loading, select, tabs } from "../widgets.js";
import { textField } from "./queues.js";

const TABS = [["users", "Users"], ["rules", "Rules"], ["quotas", "Quotas"], ["refused", "Refused"]];
const SOURCES = { users: ["/v1/users", "users"], rules: ["/v1/acls", "rules"], quotas: ["/v1/quotas", "quotas"], refused: ["/v1/acls/refusals", "refusals"] };
const OPERATIONS = ["READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "ALL"].map((each) => [each, each]);
const RESOURCES = [["TOPIC", "topic"], ["GROUP", "group"], ["TRANSACTIONAL_ID", "transactional id"], ["CLUSTER", "cluster"]];
const CLUSTER_NAME = "kafka-cluster";

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
  const show = { users, rules, quotas, refused }[state.tab];
  return show(state, context, reload);
}

// --- users

function users(state, context, reload) {
  const columns = [
    { name: "name", title: "User", class: "name", cell: (row) => row.name },
    { name: "state", title: "State", cell: (row) => (row.disabled ? badge("disabled", "warn") : badge("active", "good")) },
    { name: "mechanisms", title: "Passwords for", wide: true, cell: (row) => Object.keys(row.mechanisms).join(", ") || "–" },
    { name: "tokens", title: "Tokens", align: "right", cell: (row) => count(row.tokens.length) },
    { name: "actions", title: "Actions", isHidden: true, align: "right", cell: (row) => [
      button(row.disabled ? "Enable" : "Disable", () => setDisabled(row).then((done) => done && reload()), { class: "plain", title: `${row.disabled ? "Enable" : "Disable"} ${row.name}` }),
      button("Delete", () => removeUser(row).then((done) => done && reload()), { class: "plain", title: `Delete ${row.name}` })] },
  ];
  return [
    h("div", { class: "toolbar" }, h("span", { class: "muted", role: "status" }, `${count(state.rows.length)} users`), h("span", { class: "space" }),
      button("Create user", () => createUser().then((done) => done && reload()), { class: "primary" })),
    table({ state: state.table, columns, rows: state.rows, rowKey: (row) => row.name, label: "Users", update: context.update, empty: empty("There are no users.", "Create one here, or with: penstock user create ann") }),
  ];
}

function createUser() {
  const values = { name: "", password: "" };
  return formDialog({
    title: "Create a user", values, label: "Create",
    fields: (given, update) => [
      textField(given, update, "name", "Name", { required: true, autofocus: true, autocomplete: "off" }),
      textField(given, update, "password", "Password", { type: "password", required: true, autocomplete: "new-password" }),
    ],
    copy: (given) => ({ method: "POST", target: "/v1/users", body: { name: given.name, password: "..." }, penstock: ["user", "create", given.name || "NAME"] }),
    act: (given) => request("POST", "/v1/users", { name: given.name, password: given.password }),
  });
}

function setDisabled(row) {
  const target = url(["v1", "users", row.name]);
  const body = { disabled: !row.disabled };
  return confirmAction({
    title: row.disabled ? `Enable ${row.name}` : `Disable ${row.name}`, label: row.disabled ? "Enable the user" : "Disable the user",
    loss: row.disabled ? `${row.name} can log in again.` : `${row.name} cannot log in, and its connections and sessions end within seconds.`,
    act: () => request("PATCH", target, body), copy: { method: "PATCH", target, body },
  });
}

function removeUser(row) {
  const target = url(["v1", "users", row.name]);
  return confirmAction({
    title: `Delete user ${row.name}`, name: row.name, label: "Delete the user",
    loss: `${row.name} cannot log in any more; its tokens are revoked, and its connections end within seconds. Rules that name the user stay. This cannot be undone.`,
    act: () => request("DELETE", target), copy: { method: "DELETE", target, penstock: ["user", "delete", row.name] },
  });
}

// --- rules

function rules(state, context, reload) {
  if (state.mode === "off") return empty("Authorization is off: every user may do everything.", "Start brokers with authorization.mode=report to see what rules would refuse, or enforce to apply them.");
  const wanted = (context.query.search || "").toLowerCase();
  const rows = state.rows.filter((row) => Object.values(row).join(" ").toLowerCase().includes(wanted));
  const columns = [
    { name: "principal", title: "User", class: "name", cell: (row) => row.principal.replace(/^User:/, "") },
    { name: "permission", title: "Decision", cell: (row) => badge(row.permission.toLowerCase(), row.permission === "DENY" ? "bad" : "good") },
    { name: "operation", title: "Operation", cell: (row) => row.operation },
    { name: "resource", title: "Resource", cell: (row) => `${row.resource_type.toLowerCase()} ${row.name}${row.pattern === "PREFIXED" ? "*" : ""}` },
    { name: "host", title: "Host", wide: true, cell: (row) => row.host },
    { name: "actions", title: "Actions", isHidden: true, align: "right", cell: (row) => button("Remove", () => removeRule(row).then((done) => done && reload()), { class: "plain", title: `Remove ${row.operation} of ${row.principal}` }) },
  ];
  return [
    ask(state, context),
    h("div", { class: "toolbar" },
      input(context.query.search || "", (search) => context.setQuery({ search }), { type: "search", placeholder: "Search rules", "aria-label": "Search rules" }),
      h("span", { class: "muted", role: "status" }, `${count(rows.length)} rules`), h("span", { class: "space" }),
      button("Add rule", () => addRule().then((done) => done && reload()), { class: "primary" })),
    table({ state: state.table, columns, rows, rowKey: (row) => JSON.stringify(row), label: "Rules", update: context.update, empty: empty("There are no rules.", "Allow a user to read a topic: penstock acl allow ann read topic:orders") }),
  ];
}

// The question "may ann read orders?", answered with the rule that decides.
function ask(state, context) {
  const { question, answer } = state;
  const set = (name) => (value) => {
    question[name] = value;
    state.answer = null;
    context.update();
  };
  const look = () => context.run(async () => {
    const name = question.resource_type === "CLUSTER" ? CLUSTER_NAME : question.name;
    state.answer = await get(url(["v1", "acls", "decision"], { ...question, name }), context.signal);
  });
  return h("form", { class: "toolbar", "aria-label": "May a user do something?", on: { submit: (event) => { event.preventDefault(); look(); } } },
    h("span", null, "May"), input(question.user, set("user"), { placeholder: "user", "aria-label": "User", size: "12", autocomplete: "off" }),
    label("Operation", select(question.operation, OPERATIONS, set("operation"))), label("Resource type", select(question.resource_type, RESOURCES, set("resource_type"))),
    question.resource_type === "CLUSTER" ? null : input(question.name, set("name"), { placeholder: "name", "aria-label": "Resource name", size: "16", autocomplete: "off" }),
    h("button", { type: "submit", disabled: !question.user || (question.resource_type !== "CLUSTER" && !question.name) || null }, "?"),
    h("span", { role: "status" }, answer ? [badge(answer.allowed ? "yes" : "no", answer.allowed ? "good" : "bad"), ` ${answer.reason}`] : ""));
}

function label(text, control) {
  return h("label", { class: "check" }, h("span", { class: "hidden-text" }, text), control);
}

function addRule() {
  const values = { user: "", permission: "ALLOW", operation: "READ", resource_type: "TOPIC", name: "", pattern: "LITERAL" };
  const rule = (given) => ({ principal: `User:${given.user}`, permission: given.permission, operation: given.operation, resource_type: given.resource_type, name: given.resource_type === "CLUSTER" ? CLUSTER_NAME : given.name, pattern: given.pattern });
  const choose = (given, update, name, text, choices) => field(text, select(given[name], choices, (value) => { given[name] = value; update(); }));
  return formDialog({
    title: "Add a rule", values, label: "Add",
    fields: (given, update) => [
      textField(given, update, "user", "User (* for all users)", { required: true, autofocus: true, autocomplete: "off" }),
      choose(given, update, "permission", "Decision", [["ALLOW", "allow"], ["DENY", "deny"]]),
      choose(given, update, "operation", "Operation", OPERATIONS),
      choose(given, update, "resource_type", "Resource type", RESOURCES),
      given.resource_type === "CLUSTER" ? null : textField(given, update, "name", "Name (* for all)", { required: true, autocomplete: "off" }),
      given.resource_type === "CLUSTER" ? null : choose(given, update, "pattern", "The name is", [["LITERAL", "the whole name"], ["PREFIXED", "a prefix"]]),
    ],
    copy: (given) => ({ method: "POST", target: "/v1/acls", body: { rules: [rule(given)] }, penstock: ["acl", given.permission.toLowerCase(), given.user || "USER", given.operation.toLowerCase().replaceAll("_", "-"), given.resource_type === "CLUSTER" ? "cluster" : `${given.resource_type.toLowerCase().replaceAll("_", "-")}:${given.name}`, ...(given.pattern === "PREFIXED" ? ["--prefix"] : [])] }),
    act: (given) => request("POST", "/v1/acls", { rules: [rule(given)] }),
  });
}

function removeRule(row) {
  const target = url(["v1", "acls"], row);
  return confirmAction({
    title: "Remove a rule", label: "Remove the rule",
    loss: `${row.permission === "DENY" ? "Nothing denies" : "Nothing allows"} ${row.operation} on ${row.resource_type.toLowerCase()} ${row.name} to ${row.principal} by this rule any more.`,
    act: () => request("DELETE", target), copy: { method: "DELETE", target },
  });
}

// --- quotas and refusals

function quotas(state, context) {
  const entity = ({ entity: { user, client_id: client, ip } }) => [user === undefined ? "" : `user ${user ?? "(default)"}`, client === undefined ? "" : `client id ${client ?? "(default)"}`, ip === undefined ? "" : `address ${ip ?? "(default)"}`].filter(Boolean).join(", ");
  const columns = [
    { name: "entity", title: "Entity", class: "name", cell: entity },
    { name: "values", title: "Quotas", cell: (row) => Object.entries(row.values).map(([name, value]) => `${name} ${count(value)}`).join(", ") },
  ];
  return table({ state: state.table, columns, rows: state.rows, rowKey: entity, label: "Quotas", update: context.update, empty: empty("There are no quotas.", "Limit a user: penstock quota set --user ann producer_byte_rate=1048576") });
}

function refused(state, context) {
  const columns = [
    { name: "principal", title: "User", class: "name", cell: (row) => row.principal.replace(/^User:/, "") },
    { name: "operation", title: "Operation", cell: (row) => row.operation },
    { name: "resource", title: "Resource", cell: (row) => `${row.resource_type.toLowerCase()} ${row.name}` },
    { name: "host", title: "Host", wide: true, cell: (row) => row.host },
    { name: "count", title: "Requests", align: "right", cell: (row) => count(row.count) },
  ];
  return table({ state: state.table, columns, rows: state.rows, rowKey: (row) => JSON.stringify(row), label: "Refused requests", update: context.update, empty: empty("No request was refused since the brokers started.") });
}
