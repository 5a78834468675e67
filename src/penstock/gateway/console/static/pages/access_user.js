// One user: password, access tokens, the rules and quotas that name it.

import { get, request, url } from "../api.js";
import { confirmAction, formDialog, openDialog } from "../dialog.js";
import { count } from "../format.js";
import { h } from "../render.js";
import { guarded, onCluster } from "../rights.js";
import { table, tableState } from "../table.js";
import { badge, button, definition, empty, link, loading, when } from "../widgets.js";
import { edit } from "./access_quotas.js";
import { removeUser, setDisabled } from "./access_users.js";
import { textField } from "./queues.js";

const DAY_MS = 86_400_000;
const MAY_CHANGE = [onCluster("ALTER")];

export const user = {
  path: "/access/users/:user",
  title: ({ user: name }) => name,
  start(context) {
    const name = context.params.user;
    const state = { user: null, rules: null, quotas: [], tokens: tableState(), rows: tableState() };
    const load = async () => {
      state.user = await get(url(["v1", "users", name]), context.signal);
      state.quotas = (await get("/v1/quotas", context.signal)).quotas.filter((each) => each.entity.user === name);
      state.rules = await rulesOf(name, context.signal);
    };
    context.run(load);
    return { view: () => view(state, context, () => context.run(load)) };
  },
};

// Rules that name a user; none while authorization is off.
async function rulesOf(name, signal) {
  if ((await get("/v1/acls/refusals", signal)).mode === "off") return null;
  return (await get(url(["v1", "acls"], { principal: `User:${name}` }), signal)).rules;
}

function view(state, context, reload) {
  const { user: shown } = state;
  if (!shown) return loading();
  const then = (work) => () => work().then((done) => done && reload());
  return [
    h("div", { class: "toolbar" },
      guarded("Change password", then(() => setPassword(shown.name)), MAY_CHANGE),
      guarded("Create token", then(() => createToken(shown.name)), MAY_CHANGE, { class: "primary" }),
      guarded(shown.disabled ? "Enable" : "Disable", then(() => setDisabled(shown)), MAY_CHANGE),
      guarded("Delete user", () => removeUser(shown).then((done) => done && (location.hash = "#/access")), MAY_CHANGE, { class: "danger" })),
    definition([
      ["State", shown.disabled ? badge("disabled", "warn") : badge("active", "good")],
      ["Passwords for", Object.entries(shown.mechanisms).map(([name, rounds]) => `${name} (${count(rounds)} iterations)`).join(", ") || "none"],
      ["Quotas", [state.quotas.flatMap(({ entity, values }) => Object.entries(values).map(([key, value]) => `${key} ${count(value)}${entity.client_id === undefined ? "" : ` with client id ${entity.client_id ?? "(default)"}`}`)).join(", ") || "none",
        guarded("Change", then(() => edit(state.quotas.find(({ entity }) => entity.client_id === undefined) ?? null, { user: shown.name })), [onCluster("ALTER_CONFIGS")], { class: "plain", title: `Change the quotas of ${shown.name}` })]],
    ]),
    h("h2", null, "Access tokens"), tokens(state, context, reload),
    h("h2", null, "Rules"), rules(state, context),
  ];
}

function tokens(state, context, reload) {
  const columns = [
    { name: "label", title: "Label", class: "name", cell: (row) => row.label || h("span", { class: "muted" }, "none") },
    { name: "id", title: "Id", wide: true, cell: (row) => h("code", null, row.id) },
    { name: "created", title: "Created", align: "right", cell: (row) => when(row.created_ms) },
    { name: "expires", title: "Expires", align: "right", cell: (row) => (row.expires_ms ? when(row.expires_ms) : "never") },
    { name: "revoke", title: "Actions", isHidden: true, align: "right", cell: (row) => guarded("Revoke", () => revoke(state.user.name, row).then((done) => done && reload()), MAY_CHANGE, { class: "plain", title: `Revoke ${row.label || row.id}` }) },
  ];
  return table({ state: state.tokens, columns, rows: state.user.tokens, rowKey: (row) => row.id, label: "Access tokens", update: context.update,
    empty: empty("The user has no access tokens.", "A token lets a program use the HTTP API without a password.") });
}

function rules(state, context) {
  if (!state.rules) return empty("Authorization is off: every user may do everything.");
  const columns = [
    { name: "permission", title: "Decision", cell: (row) => badge(row.permission.toLowerCase(), row.permission === "DENY" ? "bad" : "good") },
    { name: "operation", title: "Operation", cell: (row) => row.operation },
    { name: "resource", title: "Resource", class: "name", cell: (row) => `${row.resource_type.toLowerCase()} ${row.name}${row.pattern === "PREFIXED" ? "*" : ""}` },
    { name: "host", title: "Host", wide: true, cell: (row) => row.host },
  ];
  return [
    table({ state: state.rows, columns, rows: state.rules, rowKey: (row) => JSON.stringify(row), label: "Rules of the user", update: context.update, empty: empty("No rule names this user.", "Rules of User:* hold for it too.") }),
    h("p", null, link(["access"], { tab: "rules", search: state.user.name }, "All rules, and a check of what the user may do")),
  ];
}

function setPassword(name) {
  const target = url(["v1", "users", name]);
  return formDialog({
    title: `Change the password of ${name}`, values: { password: "" }, label: "Change",
    fields: (given, update) => [
      h("p", null, "Connections and sessions of the user end within seconds, and it logs in again with the new password."),
      textField(given, update, "password", "New password", { type: "password", required: true, autofocus: true, autocomplete: "new-password" })],
    copy: () => ({ method: "PATCH", target, body: { password: "..." }, penstock: ["user", "password", name] }),
    act: (given) => request("PATCH", target, { password: given.password }),
  });
}

async function createToken(name) {
  const target = url(["v1", "users", name, "tokens"]);
  const body = (given) => ({ ...(given.label ? { label: given.label } : {}), ...(given.days ? { lifetime_ms: Math.round(Number(given.days) * DAY_MS) } : {}) });
  const made = await formDialog({
    title: `Create a token of ${name}`, values: { label: "", days: "90" }, label: "Create",
    fields: (given, update) => [
      textField(given, update, "label", "Purpose", { autofocus: true, autocomplete: "off", maxlength: "100" }),
      textField(given, update, "days", "Days until it expires; never if empty", { type: "number", min: "1" })],
    copy: (given) => ({ method: "POST", target, body: body(given), penstock: ["user", "token", "create", name, ...(given.label ? ["--label", given.label] : []), ...(given.days ? ["--expires-in", `${given.days}d`] : [])] }),
    act: (given) => request("POST", target, body(given)),
  });
  if (made) await showToken(made.token);
  return made;
}

function showToken(token) {
  return openDialog("The token", (close) => [
    h("p", null, "Copy it now: it is stored nowhere and cannot be shown again."),
    h("p", null, h("code", { class: "secret" }, token)),
    h("div", { class: "actions" }, button("I have copied it", () => close(true), { class: "primary" })),
  ]);
}

function revoke(name, token) {
  const target = url(["v1", "users", name, "tokens", token.id]);
  return confirmAction({
    title: "Revoke a token", label: "Revoke the token",
    loss: `Requests with the token ${token.label || token.id} are refused within seconds. This cannot be undone.`,
    act: () => request("DELETE", target), copy: { method: "DELETE", target, penstock: ["user", "token", "revoke", name, token.id] },
  });
}
