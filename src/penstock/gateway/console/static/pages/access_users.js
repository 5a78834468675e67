// The list of users, and what can be done with one of them.

import { request, url } from "../api.js";
import { confirmAction, formDialog } from "../dialog.js";
import { count } from "../format.js";
import { h } from "../render.js";
import { guarded, onCluster } from "../rights.js";
import { table } from "../table.js";
import { badge, empty, link } from "../widgets.js";
import { textField } from "./queues.js";

export function usersTab(state, context, reload) {
  const columns = [
    { name: "name", title: "User", class: "name", cell: (row) => link(["access", "users", row.name], {}, row.name) },
    { name: "state", title: "State", cell: (row) => (row.disabled ? badge("disabled", "warn") : badge("active", "good")) },
    { name: "mechanisms", title: "Passwords for", wide: true, cell: (row) => Object.keys(row.mechanisms).join(", ") || "–" },
    { name: "tokens", title: "Tokens", align: "right", cell: (row) => count(row.tokens.length) },
    { name: "actions", title: "Actions", isHidden: true, align: "right", cell: (row) => [
      guarded(row.disabled ? "Enable" : "Disable", () => setDisabled(row).then((done) => done && reload()), [onCluster("ALTER")], { class: "plain", title: `${row.disabled ? "Enable" : "Disable"} ${row.name}` }),
      guarded("Delete", () => removeUser(row).then((done) => done && reload()), [onCluster("ALTER")], { class: "plain", title: `Delete ${row.name}` })] },
  ];
  return [
    h("div", { class: "toolbar" }, h("span", { class: "muted", role: "status" }, `${count(state.rows.length)} users`), h("span", { class: "space" }),
      guarded("Create user", () => createUser().then((done) => done && reload()), [onCluster("ALTER")], { class: "primary" })),
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

export function setDisabled(row) {
  const target = url(["v1", "users", row.name]);
  const body = { disabled: !row.disabled };
  return confirmAction({
    title: row.disabled ? `Enable ${row.name}` : `Disable ${row.name}`, label: row.disabled ? "Enable the user" : "Disable the user",
    loss: row.disabled ? `${row.name} can log in again.` : `${row.name} cannot log in, and its connections and sessions end within seconds.`,
    act: () => request("PATCH", target, body), copy: { method: "PATCH", target, body, penstock: ["user", row.disabled ? "enable" : "disable", row.name] },
  });
}

export function removeUser(row) {
  const target = url(["v1", "users", row.name]);
  return confirmAction({
    title: `Delete user ${row.name}`, name: row.name, label: "Delete the user",
    loss: `${row.name} cannot log in any more; its tokens are revoked, and its connections end within seconds. Rules that name the user stay. This cannot be undone.`,
    act: () => request("DELETE", target), copy: { method: "DELETE", target, penstock: ["user", "delete", row.name] },
  });
}
