// The form that resets the offsets of a group, with the offsets before and after from a dry run.

import { request, url } from "../api.js";
import { formDialog } from "../dialog.js";
import { count } from "../format.js";
import { h } from "../render.js";
import { field, input, select } from "../widgets.js";

const WAYS = [["earliest", "the first message"], ["latest", "the end: skip everything"], ["time", "a time"], ["shift", "forwards or back by a number of messages"], ["offset", "an offset of one partition"], ["group", "the offsets of another group"]];

// The body of the request that a form stands for. Pure.
export function resetBody(values) {
  const { topic, way } = values;
  const some = values.partition === "" ? {} : { partitions: [Number(values.partition)] };
  if (way === "earliest" || way === "latest") return { topic, to: way, ...some };
  if (way === "time") return { topic, time_ms: Date.parse(values.time) || 0, ...some };
  if (way === "shift") return { topic, shift: Number(values.shift) || 0, ...some };
  if (way === "offset") return { offsets: [{ topic, partition: Number(values.partition) || 0, offset: Number(values.offset) || 0 }] };
  return { from_group: values.group, ...(topic ? { topic } : {}) };
}

export function resetDialog(name, topics) {
  const values = { topic: topics[0] || "", way: "earliest", partition: "", time: "", shift: "-10", offset: "0", group: "", plan: null, error: "", turn: 0 };
  const target = url(["v1", "groups", name, "reset"]);
  const preview = async (update) => {
    const turn = ++values.turn;
    try {
      const { offsets } = await request("POST", target, { ...resetBody(values), dry_run: true });
      if (turn === values.turn) Object.assign(values, { plan: offsets, error: "" });
    } catch (error) {
      if (turn === values.turn) Object.assign(values, { plan: null, error: error.message });
    }
    update();
  };
  return formDialog({
    title: `Reset the offsets of ${name}`, values, label: "Reset",
    fields: (given, update) => {
      const change = (part) => (value) => {
        given[part] = value;
        update();
        preview(update);
      };
      if (given.turn === 0) preview(update);
      const text = (part, label, attributes) => field(label, input(given[part], change(part), attributes));
      return [
        topics.length > 1 ? field("Topic", select(given.topic, topics.map((each) => [each, each]), change("topic"))) : text("topic", "Topic", { autocomplete: "off" }),
        field("Move to", select(given.way, WAYS, change("way"))),
        given.way === "time" ? text("time", "Time", { type: "datetime-local", step: "1" }) : null,
        given.way === "shift" ? text("shift", "Messages (negative: back)", { type: "number" }) : null,
        given.way === "offset" ? text("offset", "Offset", { type: "number", min: "0" }) : null,
        given.way === "group" ? text("group", "Group to copy from", { autocomplete: "off" }) : null,
        given.way === "group" ? null : text("partition", given.way === "offset" ? "Partition" : "Partition (all if empty)", { type: "number", min: "0" }),
        given.error ? h("p", { class: "notice warn" }, given.error) : plan(given.plan),
      ];
    },
    copy: (given) => ({ method: "POST", target, body: resetBody(given), penstock: resetWords(name, given) }),
    act: (given) => request("POST", target, resetBody(given)),
  });
}

// The words of the penstock command that a form stands for. Pure.
export function resetWords(name, values) {
  const { topic, way, partition } = values;
  const place = {
    earliest: ["--to-earliest"], latest: ["--to-latest"], time: ["--to-time", new Date(Date.parse(values.time) || 0).toISOString()], shift: ["--shift", values.shift],
    offset: ["--to-offset", values.offset], group: ["--from-group", values.group || "GROUP"],
  }[way];
  const some = way === "offset" ? `${topic}:${partition || 0}` : partition === "" || way === "group" ? topic : `${topic}:${partition}`;
  return ["group", "reset", name, ...(topic ? ["--topic", some] : ["--all-topics"]), ...place, "--execute"];
}

function plan(offsets) {
  if (!offsets) return h("p", { class: "muted" }, "Computing the new offsets…");
  return h("table", { class: "small" },
    h("thead", null, h("tr", null, ["Topic", "Partition", "Before", "After", "Change"].map((title) => h("th", { key: title, scope: "col" }, title)))),
    h("tbody", null, offsets.slice(0, 20).map((each) => h("tr", { key: `${each.topic} ${each.partition}` },
      h("td", null, each.topic), h("td", null, String(each.partition)), h("td", null, each.before === null ? "none" : count(each.before)), h("td", null, count(each.offset)),
      h("td", null, each.before === null ? "" : signed(each.offset - each.before))))),
    offsets.length > 20 ? h("caption", null, `and ${offsets.length - 20} more partitions`) : null);
}

function signed(value) {
  return value > 0 ? `+${count(value)}` : count(value);
}
