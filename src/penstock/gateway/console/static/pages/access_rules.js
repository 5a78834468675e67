// Rules of access, and the question whether a user may do something.

import { get, request, url } from "../api.js";
import { confirmAction, formDialog } from "../dialog.js";
import { count } from "../format.js";
import { h } from "../render.js";
import { guarded, onCluster } from "../rights.js";
import { table } from "../table.js";
import { badge, empty, field, input, select } from "../widgets.js";
import { textField } from "./queues.js";

const OPERATIONS = ["READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "ALL"].map((each) => [each, each]);
const RESOURCES = [["TOPIC", "topic"], ["GROUP", "group"], ["TRANSACTIONAL_ID", "transactional id"], ["CLUSTER", "cluster"]];
const CLUSTER_NAME = "kafka-cluster";

export function rulesTab(state, context, reload) {
  if (state.mode === "off") return empty("Authorization is off: every user may do everything.", "Start brokers with authorization.mode=report to see what rules would refuse, or enforce to apply them.");
  const wanted = (context.query.search || "").toLowerCase();
  const rows = state.rows.filter((row) => Object.values(row).join(" ").toLowerCase().includes(wanted));
  const columns = [
    { name: "principal", title: "User", class: "name", cell: (row) => row.principal.replace(/^User:/, "") },
    { name: "permission", title: "Decision", cell: (row) => badge(row.permission.toLowerCase(), row.permission === "DENY" ? "bad" : "good") },
    { name: "operation", title: "Operation", cell: (row) => row.operation },
    { name: "resource", title: "Resource", cell: (row) => `${row.resource_type.toLowerCase()} ${row.name}${row.pattern === "PREFIXED" ? "*" : ""}` },
    { name: "host", title: "Host", wide: true, cell: (row) => row.host },
    { name: "actions", title: "Actions", isHidden: true, align: "right", cell: (row) => guarded("Remove", () => removeRule(row).then((done) => done && reload()), [onCluster("ALTER")], { class: "plain", title: `Remove ${row.operation} of ${row.principal}` }) },
  ];
  return [
    ask(state, context),
    h("div", { class: "toolbar" },
      input(context.query.search || "", (search) => context.setQuery({ search }), { type: "search", placeholder: "Search rules", "aria-label": "Search rules" }),
      h("span", { class: "muted", role: "status" }, `${count(rows.length)} rules`), h("span", { class: "space" }),
      guarded("Add rule", () => addRule().then((done) => done && reload()), [onCluster("ALTER")], { class: "primary" })),
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
