// One message: its content as JSON, text or hex, its headers, and the messages beside it.

import { get, url } from "../api.js";
import { contentView } from "../content.js";
import { jsonLines, save } from "../download.js";
import { bytes, exact, visible } from "../format.js";
import { isHidden } from "../hiding.js";
import { h } from "../render.js";
import { guarded, onTopic } from "../rights.js";
import { button, definition, empty, link, loading, select, topicLink, when } from "../widgets.js";
import { send } from "./topic_messages.js";

const FORMS = [["json", "JSON"], ["text", "Text"], ["hex", "Hex"]];

export const message = {
  path: "/topics/:topic/:partition/:offset",
  title: ({ topic, partition, offset }) => `${topic} ${partition}:${offset}`,
  heading: ({ partition, offset }) => `Message ${offset} of partition ${partition}`,
  start(context) {
    const { topic, partition, offset } = context.params;
    const state = { message: undefined };
    context.run(async () => {
      const page = await get(url(["v1", "topics", topic, "messages"], { partition, offset, limit: 1 }), context.signal);
      state.message = page.messages.find((each) => String(each.offset) === offset) ?? null;
    });
    return { view: () => view(state, context) };
  },
};

function view(state, context) {
  const { topic, partition, offset } = context.params;
  if (state.message === undefined) return loading();
  const near = (step) => link(["topics", topic, partition, String(Number(offset) + step)], {}, step < 0 ? "← previous" : "next →");
  const bar = h("div", { class: "toolbar" }, topicLink(topic), Number(offset) > 0 ? near(-1) : null, near(1), h("span", { class: "space" }), actions(state.message, topic, context));
  if (state.message === null) return [bar, empty("There is no message at this offset.", "It was deleted by retention or compaction, belongs to an aborted transaction, or has not been written.")];
  const { message: shown } = state;
  const hidden = isHidden(topic);
  return [
    bar,
    definition([
      ["Time", h("span", null, exact(shown.timestamp_ms), " (", when(shown.timestamp_ms), ")")],
      ["Key", shown.key_base64 !== undefined ? `binary: ${shown.key_base64}` : shown.key === null ? "none" : visible(shown.key)],
      ["Size", bytes(shown.size)],
      ["CRC", shown.crc.toString(16).padStart(8, "0")],
      ...shown.headers.map(({ name, value, value_base64: base64 }, place) => [`Header ${place + 1}: ${visible(name)}`, hidden ? "hidden" : base64 !== undefined ? `binary: ${base64}` : value === null ? "none" : visible(value)]),
    ]),
    hidden ? h("p", { class: "notice" }, "The values of this topic are hidden (console.hide.values).") : [
      h("div", { class: "toolbar" }, select(context.query.form || "json", FORMS, (form) => context.setQuery({ form: form === "json" ? "" : form }))),
      contentView(shown, context.query.form || "json"),
    ],
  ];
}

function actions(shown, topic, context) {
  if (!shown || isHidden(topic)) return null;
  return [
    guarded("Send again", () => send(topic, shown).then(context.update), [onTopic("WRITE", topic)]),
    button("Download", () => save(`${topic}-${shown.partition}-${shown.offset}.json`, "application/json", jsonLines([shown]))),
  ];
}
