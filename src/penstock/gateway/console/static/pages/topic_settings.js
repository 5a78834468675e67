// The settings of a topic, with their documentation, and the change of one.

import { get, request, url } from "../api.js";
import { formDialog } from "../dialog.js";
import { h } from "../render.js";
import { guarded, onTopic } from "../rights.js";
import { badge, field, input, loading } from "../widgets.js";

export function settingsTab(context, name) {
  const state = { configs: null, search: "" };
  const target = url(["v1", "topics", name, "configs"]);
  const load = async () => (state.configs = (await get(target, context.signal)).configs);
  context.run(load);
  return { view: () => settings(state, context, (config) => edit(config, target, ["topic", "alter", name], context, load), onTopic("ALTER_CONFIGS", name)) };
}

// A list of settings with a search field; `onEdit` opens the form of one.
// `need` is the right to change one.
export function settings(state, context, onEdit, need) {
  if (!state.configs) return loading();
  const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
  const found = state.configs.filter(({ name, documentation }) => words.every((word) => `${name} ${documentation}`.toLowerCase().includes(word)));
  const ordered = [...found].sort((left, right) => Number(left.default) - Number(right.default) || left.name.localeCompare(right.name));
  return [
    h("div", { class: "toolbar" }, input(state.search, (text) => { state.search = text; context.update(); }, { type: "search", placeholder: "Search settings", "aria-label": "Search settings" })),
    h("ul", { class: "settings" }, ordered.map((config) => h("li", { key: config.name },
      h("div", null, h("code", null, config.name), config.default ? null : badge("set here", "good"), config.read_only ? badge("needs a restart") : null,
        h("p", { class: "muted" }, config.documentation)),
      h("div", { class: "setting-value" }, h("code", null, config.sensitive ? "hidden" : config.value === "" || config.value === null ? "(empty)" : config.value),
        config.read_only ? null : guarded("Change", () => onEdit(config), [need], { class: "plain", title: `Change ${config.name}` }))))),
  ];
}

export async function edit(config, target, words, context, reload) {
  const values = { value: config.value ?? "", isDefault: false };
  const body = (given) => ({ [config.name]: given.isDefault ? null : given.value });
  const done = await formDialog({
    title: `Change ${config.name}`, values, label: "Change",
    fields: (given, update) => [
      h("p", { class: "muted" }, config.documentation),
      field("Value", input(given.value, (value) => { given.value = value; update(); }, { autofocus: true, autocomplete: "off", disabled: given.isDefault || null })),
      h("label", { class: "check" }, h("input", { type: "checkbox", checked: given.isDefault, on: { change: (event) => { given.isDefault = event.target.checked; update(); } } }), "return to the default"),
      h("p", null, "Before: ", h("code", null, config.value ?? ""), " Afterwards: ", h("code", null, given.isDefault ? "the default" : given.value)),
    ],
    copy: (given) => ({ method: "PATCH", target, body: body(given), penstock: words ? [...words, ...(given.isDefault ? ["--unset", config.name] : ["--set", `${config.name}=${given.value}`])] : null }),
    act: (given) => request("PATCH", target, body(given)),
  });
  if (done) context.run(reload);
}
