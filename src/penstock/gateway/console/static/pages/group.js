// One consumer group: lag over time, members, committed offsets, and what can be changed about them.

import { get, request, url } from "../api.js";
import { chart } from "../chart.js";
import { confirmAction } from "../dialog.js";
import { count } from "../format.js";
import { h } from "../render.js";
import { guarded, onGroup } from "../rights.js";
import { table, tableState } from "../table.js";
import { card, empty, loading, state as badgeOf, tabs, topicLink } from "../widgets.js";
import { resetDialog } from "./group_reset.js";

const TABS = [["offsets", "Offsets"], ["members", "Members"], ["lag", "Lag over time"]];

export const group = {
  path: "/groups/:group",
  title: ({ group: name }) => name,
  start(context) {
    const name = context.params.group;
    const tab = TABS.some(([each]) => each === context.query.tab) ? context.query.tab : "offsets";
    const state = { name, tab, group: null, history: null, offsets: tableState(), members: tableState() };
    const load = async () => {
      state.group = await get(url(["v1", "groups", name]), context.signal);
      if (tab === "lag") state.history = await get(url(["v1", "history"], { series: `group:${name}:lag` }), context.signal);
    };
    context.run(load);
    context.every(2000, load);
    return { view: () => view(state, context, () => context.run(load)) };
  },
};

function view(state, context, reload) {
  const { group: shown, name, tab } = state;
  if (!shown) return loading();
  const topics = [...new Set(shown.offsets.map((each) => each.topic))];
  return [
    h("div", { class: "cards" },
      card("Lag", count(shown.lag), "records"),
      card("State", badgeOf(shown.state), `${shown.type} protocol`),
      card("Members", count(shown.members.length), shown.assignor ? `assignor ${shown.assignor}` : ""),
      card("Topics", count(topics.length), `${count(shown.offsets.length)} partitions`)),
    h("div", { class: "toolbar" },
      guarded("Reset offsets", () => resetDialog(name, topics).then((done) => done && reload()), [onGroup("READ", name)], { class: "primary", disabled: shown.members.length > 0, title: shown.members.length ? "Stop the members first: a running member would overwrite the offsets" : "" }),
      guarded("Delete group", () => remove(name, shown), [onGroup("DELETE", name)], { class: "danger", disabled: shown.members.length > 0, title: shown.members.length ? "Stop the members first" : "" })),
    tabs(["groups", name], tab, TABS),
    content(state, context, reload, topics),
  ];
}

const OFFSETS = [
  { name: "topic", title: "Topic", cell: (row) => topicLink(row.topic), class: "name" },
  { name: "partition", title: "Partition", align: "right", cell: (row) => String(row.partition) },
  { name: "committed", title: "Committed", align: "right", cell: (row) => (row.committed === null ? h("span", { class: "muted" }, "none") : count(row.committed)) },
  { name: "end", title: "End", align: "right", wide: true, cell: (row) => count(row.end) },
  { name: "lag", title: "Lag", align: "right", cell: (row) => count(row.lag) },
];

function content(state, context, reload, topics) {
  const { group: shown, name, tab, history } = state;
  if (tab === "members") {
    const columns = [
      { name: "id", title: "Member", cell: (row) => row.id, class: "name" },
      { name: "client", title: "Client id", cell: (row) => row.client_id },
      { name: "host", title: "Host", wide: true, cell: (row) => row.host },
      { name: "partitions", title: "Partitions", cell: (row) => Object.entries(row.partitions).map(([topic, numbers]) => `${topic} ${numbers.join(", ")}`).join("; ") || "none" },
      { name: "remove", title: "Actions", isHidden: true, align: "right", cell: (row) => guarded("Remove", () => removeMember(name, row).then((done) => done && reload()), [onGroup("READ", name)], { class: "plain", title: `Remove ${row.id}` }) },
    ];
    return table({ state: state.members, columns, rows: shown.members, rowKey: (row) => row.id, label: "Members", update: context.update, empty: empty("The group has no members.", `Start one: penstock consume TOPIC --group ${name}`) });
  }
  if (tab === "lag") {
    if (!history) return loading();
    const values = history.series[`group:${name}:lag`];
    if (!values) return empty("There are no figures of this group yet.", "The 200 groups with the greatest lag have them.");
    return h("div", { class: "charts wide" }, chart({ label: "Lag, records", series: [{ name: "lag", values }], stepMs: history.step_ms, endMs: history.end_ms, format: count }));
  }
  const columns = [...OFFSETS, { name: "delete", title: "Actions", isHidden: true, align: "right", wide: true, cell: (row) => (row.partition === 0 ? guarded("Delete offsets", () => deleteOffsets(name, row.topic).then((done) => done && reload()), [onGroup("DELETE", name)], { class: "plain", title: `Delete the offsets of ${row.topic}` }) : null) }];
  return table({ state: state.offsets, columns, rows: shown.offsets, rowKey: (row) => `${row.topic} ${row.partition}`, label: "Committed offsets", update: context.update, empty: empty("The group has committed no offsets.", topics.length ? "" : "They appear when a member commits.") });
}

async function remove(name, shown) {
  const target = url(["v1", "groups", name]);
  const done = await confirmAction({
    title: `Delete group ${name}`, name, label: "Delete the group",
    loss: `The committed offsets of ${count(shown.offsets.length)} partitions are deleted. A consumer that starts again with this group begins where auto.offset.reset says: it may read messages twice or skip some. This cannot be undone.`,
    act: () => request("DELETE", target), copy: { method: "DELETE", target, penstock: ["group", "delete", name] },
  });
  if (done) location.hash = "#/groups";
}

function removeMember(name, member) {
  const target = url(["v1", "groups", name, "members", member.id]);
  return confirmAction({
    title: "Remove a member", label: "Remove the member",
    loss: `${member.client_id} (${member.host}) leaves the group, which rebalances. Messages that it has not committed are read again by another member. A consumer that still runs joins again.`,
    act: () => request("DELETE", target), copy: { method: "DELETE", target, penstock: ["group", "remove-member", name, member.id] },
  });
}

function deleteOffsets(name, topic) {
  const target = url(["v1", "groups", name, "topics", topic]);
  return confirmAction({
    title: `Delete the offsets of ${topic}`, name: topic, label: "Delete the offsets",
    loss: `The offsets that group ${name} has committed for ${topic} are deleted. This cannot be undone.`,
    act: () => request("DELETE", target), copy: { method: "DELETE", target, penstock: ["group", "delete-offsets", name, "--topic", topic] },
  });
}
