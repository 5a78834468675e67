// The list of consumer groups with their lag.

import { count } from "../format.js";
import { ServerList } from "../list.js";
import { h } from "../render.js";
import { table, tableState, visibleRange } from "../table.js";
import { empty, groupLink, input, loading, select, state as badgeOf } from "../widgets.js";

const COLUMNS = [
  { name: "id", title: "Group", sort: "name", cell: (row) => groupLink(row.id), class: "name" },
  { name: "state", title: "State", sort: "state", cell: (row) => badgeOf(row.state) },
  { name: "type", title: "Protocol", wide: true, cell: (row) => row.type },
  { name: "members", title: "Members", sort: "members", align: "right", cell: (row) => count(row.members) },
  { name: "topics", title: "Topics", align: "right", wide: true, cell: (row) => count(row.topics) },
  { name: "lag", title: "Lag", sort: "lag", align: "right", cell: (row) => count(row.lag) },
];
const STATES = [["", "any state"], ["Stable", "Stable"], ["Empty", "Empty"], ["PreparingRebalance", "Preparing"], ["CompletingRebalance", "Completing"], ["Reconciling", "Reconciling"]];

export const groups = {
  path: "/groups",
  title: () => "Consumer groups",
  nav: "Groups",
  key: "c",
  start(context) {
    const list = new ServerList(["v1", "groups"], "groups", context);
    const windowed = tableState();
    const load = () => context.run(() => list.load({ search: context.query.search || "", sort: context.query.sort || "lag", state: context.query.state || "" }));
    load();
    return {
      onFigures: (figures) => list.refresh(figures.groups, "id"),
      view: () => {
        follow(context, list, windowed);
        return view(context, list, windowed, load);
      },
    };
  },
};

function follow(context, list, windowed) {
  if (!list.rows) return;
  const { first, last } = visibleRange(windowed.scrollTop, windowed.height, list.rows.length);
  const shown = list.rows.slice(first, last).map((row) => row.id);
  context.live.want(shown.length ? { groups: shown } : null);
}

function view(context, list, windowed, load) {
  const change = (changes) => {
    context.setQuery(changes);
    windowed.scrollTop = 0;
    load();
  };
  return [
    h("div", { class: "toolbar" },
      input(context.query.search || "", (search) => change({ search }), { type: "search", placeholder: "Search groups", "aria-label": "Search groups" }),
      h("label", { class: "check" }, h("span", { class: "hidden-text" }, "State"), select(context.query.state || "", STATES, (state) => change({ state }))),
      h("span", { class: "muted", role: "status" }, list.rows ? `${count(list.total)} groups` : "")),
    list.rows === null ? loading() : table({
      state: windowed, columns: COLUMNS, rows: list.rows, total: list.total, rowKey: (row) => row.id, label: "Consumer groups", update: context.update,
      sort: context.query.sort || "lag", onSort: (sort) => change({ sort: sort === "lag" ? "" : sort }), onNearEnd: () => context.run(() => list.more()),
      empty: context.query.search || context.query.state ? empty("No group matches.", "Search for a part of the id.") : empty("There are no consumer groups yet.", "A group begins with its first member: penstock consume TOPIC --group NAME"),
    }),
  ];
}
