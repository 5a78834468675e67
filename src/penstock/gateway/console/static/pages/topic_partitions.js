// The form that changes the number of partitions of a topic, with the partitions that a smaller number lets drain.

import { get, request, url } from "../api.js";
import { formDialog } from "../dialog.js";
import { bytes, count } from "../format.js";
import { h } from "../render.js";
import { field, input } from "../widgets.js";

export function partitionsDialog(name, present) {
  const values = { partitions: String(present + 1), plan: null, error: "", turn: 0 };
  const target = url(["v1", "topics", name]);
  const body = (given) => ({ partitions: Number(given.partitions) });
  return formDialog({
    title: `Partitions of ${name}`, values, label: "Change",
    fields: (given, update) => [
      field(`Partitions (now ${present})`, input(given.partitions, (value) => { given.partitions = value; update(); look(name, present, given, update); }, { type: "number", min: "1", autofocus: true })),
      effect(present, given),
    ],
    copy: (given) => ({ method: "PATCH", target, body: body(given), penstock: ["topic", "alter", name, "--partitions", given.partitions] }),
    act: (given) => request("PATCH", target, body(given)),
  });
}

// Ask for the writers and groups of the partitions that would go.
async function look(name, present, given, update) {
  const turn = ++given.turn;
  const wanted = Number(given.partitions);
  Object.assign(given, { plan: null, error: "" });
  if (!Number.isInteger(wanted) || wanted < 1 || wanted >= present) return;
  try {
    const plan = await get(url(["v1", "topics", name, "drain"], { partitions: wanted }));
    if (turn === given.turn) given.plan = plan;
  } catch (error) {
    if (turn === given.turn) given.error = error.message;
  }
  update();
}

function effect(present, { partitions, plan, error }) {
  const wanted = Number(partitions);
  if (error) return h("p", { class: "notice warn" }, error);
  if (wanted >= present) return h("p", null, "Messages with a key may go to another partition afterwards.");
  return [
    h("p", null, `The last ${present - wanted} partitions drain: clients that use them keep them, new clients do not see them. A partition is sealed when nobody writes to it and its groups have read it, and deleted when its last message is older than the retention. ${present} keeps them again.`),
    plan ? h("table", { class: "small" },
      h("thead", null, h("tr", null, ["Partition", "Size", "Writers", "Groups behind"].map((title) => h("th", { key: title, scope: "col" }, title)))),
      h("tbody", null, plan.going.slice(0, 20).map((each) => h("tr", { key: String(each.partition) },
        h("td", null, String(each.partition)), h("td", null, bytes(each.bytes)), h("td", null, count(each.writers.length)), h("td", null, count(each.behind.length)))))) : null,
  ];
}
