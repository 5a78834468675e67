// Views: topics that show the messages of another topic that match a filter. Create one, try a filter, change it.

import { get, request, url } from "../api.js";
import { confirmAction, formDialog } from "../dialog.js";
import { count } from "../format.js";
import { h } from "../render.js";
import { address } from "../router.js";
import { guarded, onTopic } from "../rights.js";
import { table, tableState } from "../table.js";
import { badge, button, empty, input, loading, topicLink } from "../widgets.js";
import { textField } from "./queues.js";

export const views = {
  path: "/views",
  title: () => "Views",
  nav: "Views",
  key: "v",
  start(context) {
    const state = { rows: null, table: tableState() };
    const load = async () => (state.rows = (await get("/v1/views", context.signal)).views);
    context.run(load);
    return { view: () => view(state, context, () => context.run(load)) };
  },
};

function view(state, context, reload) {
  if (!state.rows) return loading();
  const wanted = (context.query.search || "").toLowerCase();
  const rows = state.rows.filter((row) => `${row.name} ${row.of} ${row.filter}`.toLowerCase().includes(wanted));
  const columns = [
    { name: "name", title: "View", class: "name", cell: (row) => [topicLink(row.name), row.shared ? badge("shared") : null] },
    { name: "of", title: "Topic", cell: (row) => topicLink(row.of) },
    { name: "filter", title: "Filter", cell: (row) => h("code", null, row.filter) },
    { name: "actions", title: "Actions", isHidden: true, align: "right", cell: (row) => [
      row.shared ? null : guarded("Change", () => change(row).then((done) => done && reload()), [onTopic("ALTER_CONFIGS", row.name)], { class: "plain", title: `Change the filter of ${row.name}` }),
      guarded("Delete", () => remove(row).then((done) => done && reload()), [onTopic("DELETE", row.name)], { class: "plain", title: `Delete ${row.name}` })] },
  ];
  return [
    h("div", { class: "toolbar" },
      input(context.query.search || "", (search) => context.setQuery({ search }), { type: "search", placeholder: "Search views", "aria-label": "Search views" }),
      h("span", { class: "muted", role: "status" }, `${count(rows.length)} views`),
      h("span", { class: "space" }),
      button("Create view", () => create(), { class: "primary" })),
    table({ state: state.table, columns, rows, rowKey: (row) => row.name, label: "Views", update: context.update,
      empty: wanted ? empty("No view matches.") : empty("There are no views yet.", `A view shows a part of a topic to any Kafka client: penstock view create eu-orders --of orders --filter 'headers.region == "eu"'`) }),
  ];
}

// The fields of a filter, with a button that tries it on the newest messages of the topic.
function filterFields(given, update, of) {
  const look = async () => {
    try {
      const { messages, matched, failed } = await request("POST", "/v1/views/test", { of: of(), filter: given.filter, samples: 0 });
      given.tried = `${count(matched)} of the newest ${count(messages)} messages match${failed ? `; the filter fails on ${count(failed)}` : ""}.`;
    } catch (problem) {
      given.tried = problem.message;
    }
    update();
  };
  return [
    textField(given, update, "filter", "Filter", { autocomplete: "off", placeholder: 'headers.region == "eu" && json.total > 100' }),
    h("p", null, button("Try the filter", look, { disabled: !given.filter || !of() }), " ", h("span", { role: "status" }, given.tried)),
  ];
}

async function create() {
  const values = { name: "", of: "", filter: "", tried: "" };
  const body = ({ name, of, filter }) => ({ name, of, filter });
  const done = await formDialog({
    title: "Create a view", values, label: "Create",
    fields: (given, update) => [
      textField(given, update, "name", "Name", { required: true, autofocus: true, autocomplete: "off" }),
      textField(given, update, "of", "Topic", { required: true, autocomplete: "off" }),
      filterFields(given, update, () => given.of),
    ],
    copy: (given) => ({ method: "POST", target: "/v1/views", body: body(given), penstock: ["view", "create", given.name || "NAME", "--of", given.of || "TOPIC", "--filter", given.filter] }),
    act: (given) => request("POST", "/v1/views", body(given)),
  });
  if (done) location.hash = address(["topics", values.name]);
}

function change(row) {
  const target = url(["v1", "views", row.name]);
  const values = { filter: row.filter, tried: "" };
  return formDialog({
    title: `Filter of ${row.name}`, values, label: "Change",
    fields: (given, update) => filterFields(given, update, () => row.of),
    copy: (given) => ({ method: "PATCH", target, body: { filter: given.filter }, penstock: ["topic", "alter", row.name, "--set", `view.filter=${given.filter}`] }),
    act: (given) => request("PATCH", target, { filter: given.filter }),
  });
}

function remove(row) {
  const target = url(["v1", "views", row.name]);
  return confirmAction({
    title: `Delete view ${row.name}`, name: row.name, label: "Delete the view",
    loss: `Readers of ${row.name} stop, and the offsets that groups have committed in it are deleted. The messages of ${row.of} stay. This cannot be undone.`,
    act: () => request("DELETE", target), copy: { method: "DELETE", target, penstock: ["view", "delete", row.name] },
  });
}
