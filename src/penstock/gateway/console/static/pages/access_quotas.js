// Quotas of users, client ids and addresses: set, change and remove them.

import { request } from "../api.js";
import { confirmAction, formDialog } from "../dialog.js";
import { count } from "../format.js";
import { h } from "../render.js";
import { guarded, onCluster } from "../rights.js";
import { table } from "../table.js";
import { empty } from "../widgets.js";
import { textField } from "./queues.js";

const TARGET = "/v1/quotas";
const KEYS = {
  producer_byte_rate: "Bytes per second that producers may write",
  consumer_byte_rate: "Bytes per second that consumers may read",
  request_percentage: "Percentage of the time of a request thread",
  controller_mutation_rate: "Partitions per second that may be created or deleted",
  connection_creation_rate: "New connections per second of an address",
};
const PARTS = [["user", "user", "--user"], ["client_id", "client id", "--client-id"], ["ip", "address", "--ip"]];

// The entity of a quota in words. Pure.
export function entityText(entity) {
  return PARTS.filter(([name]) => entity[name] !== undefined).map(([name, title]) => `${title} ${entity[name] ?? "(default)"}`).join(", ");
}

// The entity of a form: empty fields are left out, `*` is the default. Pure.
export function entityOf(values) {
  const given = PARTS.filter(([name]) => values[name] !== "");
  return Object.fromEntries(given.map(([name]) => [name, values[name] === "*" ? null : values[name]]));
}

// The changes from one set of quotas to another; an empty field removes its quota. Pure.
export function quotaChanges(before, values) {
  const changes = {};
  for (const key of Object.keys(KEYS)) {
    const wanted = values[key] === "" ? null : Number(values[key]);
    if (wanted !== (before[key] ?? null)) changes[key] = wanted;
  }
  return changes;
}

export function quotasTab(state, context, reload) {
  const columns = [
    { name: "entity", title: "Entity", class: "name", cell: (row) => entityText(row.entity) },
    ...Object.keys(KEYS).map((key) => ({ name: key, title: key.replaceAll("_", " "), align: "right", wide: true, cell: (row) => (row.values[key] === undefined ? "–" : count(row.values[key])) })),
    { name: "actions", title: "Actions", isHidden: true, align: "right", cell: (row) => [
      guarded("Change", () => edit(row).then((done) => done && reload()), [onCluster("ALTER_CONFIGS")], { class: "plain", title: `Change the quotas of ${entityText(row.entity)}` }),
      guarded("Remove", () => remove(row).then((done) => done && reload()), [onCluster("ALTER_CONFIGS")], { class: "plain", title: `Remove the quotas of ${entityText(row.entity)}` })] },
  ];
  const rows = state.rows.filter((row) => Object.keys(row.values).length);
  return [
    h("div", { class: "toolbar" }, h("span", { class: "muted", role: "status" }, `${count(rows.length)} entities with quotas`), h("span", { class: "space" }),
      guarded("Set quotas", () => edit(null).then((done) => done && reload()), [onCluster("ALTER_CONFIGS")], { class: "primary" })),
    table({ state: state.table, columns, rows, rowKey: (row) => entityText(row.entity), label: "Quotas", update: context.update, empty: empty("There are no quotas.", "A quota slows a client down instead of refusing it: penstock quota set --user ann producer_byte_rate=1048576") }),
  ];
}

function entityWords(entity) {
  return PARTS.filter(([name]) => entity[name] !== undefined).flatMap(([name, , option]) => (entity[name] === null ? [`${option}-default`] : [option, entity[name]]));
}

function command(entity, changes) {
  const set = Object.entries(changes).filter(([, value]) => value !== null).map(([key, value]) => `${key}=${value}`);
  return set.length === Object.keys(changes).length && set.length ? ["quota", "set", ...entityWords(entity), ...set] : null;
}

// Set the quotas of an entity, or of a new one.
export function edit(row, given = {}) {
  const before = row?.values ?? {};
  const values = { user: "", client_id: "", ip: "", ...given };
  for (const key of Object.keys(KEYS)) values[key] = before[key] === undefined ? "" : String(before[key]);
  const body = () => ({ entity: row ? row.entity : entityOf(values), values: quotaChanges(before, values) });
  return formDialog({
    title: row ? `Quotas of ${entityText(row.entity)}` : "Set quotas", values, label: "Set",
    fields: (form, update) => [
      row ? null : [
        h("p", { class: "muted" }, "Name a user, a client id, both, or an address; * is the default of all others."),
        textField(form, update, "user", "User", { autocomplete: "off", autofocus: true }),
        textField(form, update, "client_id", "Client id", { autocomplete: "off" }),
        textField(form, update, "ip", "Address", { autocomplete: "off" })],
      Object.entries(KEYS).map(([key, title]) => textField(form, update, key, `${title}; none if empty`, { type: "number", min: "0", step: "any" })),
    ],
    copy: () => ({ method: "PATCH", target: TARGET, body: body(), penstock: command(body().entity, body().values) }),
    act: () => request("PATCH", TARGET, body()),
  });
}

function remove(row) {
  const body = { entity: row.entity, values: Object.fromEntries(Object.keys(row.values).map((key) => [key, null])) };
  return confirmAction({
    title: "Remove quotas", label: "Remove the quotas",
    loss: `Nothing limits ${entityText(row.entity)} any more, except quotas of the default.`,
    act: () => request("PATCH", TARGET, body), copy: { method: "PATCH", target: TARGET, body, penstock: ["quota", "remove", ...entityWords(row.entity)] },
  });
}
