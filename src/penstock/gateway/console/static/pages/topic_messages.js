// The messages of a topic: the newest, from an offset or a time, a live tail, and a search with progress.

import { events, get, request, url } from "../api.js";
import { commands } from "../command.js";
import { summary, valueAt } from "../content.js";
import { formDialog } from "../dialog.js";
import { csv, jsonLines, save } from "../download.js";
import { bytes, count, duration, exact, visible } from "../format.js";
import { isHidden } from "../hiding.js";
import { h } from "../render.js";
import { guarded, onTopic } from "../rights.js";
import { table, tableState } from "../table.js";
import { Tail } from "../tail.js";
import { button, empty, field, input, link, loading, select, when } from "../widgets.js";
import { parseSearch, searchWords } from "./message_search.js";

const KINDS = [["newest", "Newest"], ["offset", "From an offset"], ["time", "From a time"], ["tail", "Live tail"], ["search", "Search"]];
const LIMIT = 200;

export function messagesTab(context, topic) {
  const state = { messages: null, progress: null, table: tableState(), tail: null, search: null, failed: false };
  const reload = () => {
    stop(state);
    state.messages = null;
    state.progress = null;
    state.failed = false;
    context.run(() => read(state, context, topic).catch((error) => {
      state.failed = true;
      throw error;
    }));
  };
  context.signal.addEventListener("abort", () => stop(state));
  reload();
  return { view: () => view(state, context, topic, reload) };
}

function stop(state) {
  state.tail?.close();
  state.search?.abort();
  state.tail = state.search = null;
}

async function read(state, context, topic) {
  const { from = "newest", partition = "0", offset = "0", time = "", q = "" } = context.query;
  const path = ["v1", "topics", topic, "messages"];
  if (from === "tail") {
    state.messages = [];
    state.tail = new Tail(topic, (messages) => {
      state.messages = messages;
      context.update();
    });
  } else if (from === "search") await search(state, context, topic, q);
  else if (from === "offset") state.messages = (await get(url(path, { partition, offset, limit: LIMIT }), context.signal)).messages;
  else if (from === "time") state.messages = (await get(url(path, { time_ms: Date.parse(time) || 0, limit: LIMIT }), context.signal)).messages;
  else state.messages = (await get(url(path, { newest: 50 }), context.signal)).messages;
}

async function search(state, context, topic, text) {
  state.messages = [];
  if (!text.trim()) return;
  state.search = new AbortController();
  const { signal } = state.search;
  try {
    for await (const event of events(url(["v1", "topics", topic, "search"]), parseSearch(text), signal)) {
      if (event.type === "match") state.messages = [...state.messages, event.message];
      else state.progress = event;
      context.update();
    }
  } catch (error) {
    if (error.name !== "AbortError") throw error;
  }
}

function view(state, context, topic, reload) {
  const from = context.query.from || "newest";
  const change = (changes) => {
    context.setQuery(changes);
    reload();
  };
  const hidden = isHidden(topic);
  return [
    h("div", { class: "toolbar" },
      field("Show", select(from, KINDS, (kind) => change({ from: kind === "newest" ? "" : kind }))),
      controls(from, context, change),
      h("span", { class: "space" }),
      guarded("Send", () => send(topic, null).then((done) => done && reload()), [onTopic("WRITE", topic)], { class: "primary" }),
      hidden ? null : button("JSON lines", () => save(`${topic}.jsonl`, "application/x-ndjson", jsonLines(state.messages || [])), { title: "Download the messages shown as JSON lines" }),
      hidden ? null : button("CSV", () => save(`${topic}.csv`, "text/csv", csv(state.messages || [])), { title: "Download the messages shown as CSV" })),
    hidden ? h("p", { class: "notice" }, "The values of this topic are hidden (console.hide.values).") : null,
    from === "tail" ? h("p", { class: "muted", role: "status" }, state.tail?.status() ?? "") : null,
    progress(state),
    from === "search" && context.query.q ? copySearch(topic, context.query.q) : null,
    state.failed ? null : state.messages === null ? loading() : table({
      state: state.table, columns: columns(topic, context, hidden), rows: state.messages, rowKey: (row) => `${row.partition}-${row.offset}`, label: "Messages", update: context.update,
      empty: nothing(from, state, topic),
    }),
  ];
}

function copySearch(topic, text) {
  const query = parseSearch(text);
  return commands({ method: "POST", target: url(["v1", "topics", topic, "search"]), body: query, penstock: searchWords(topic, query) });
}

function nothing(from, state, topic) {
  if (from === "search") return state.progress ? empty("No message matches.", "Try fewer words, another time, or a longer search.") : empty("Search the messages of this topic.", "Words are found in values, keys and headers. Also: key:17, header:name=value, json:$.user.id=7, regex:err.*, filter:\"size > 1000\", since:2h, partition:0.");
  if (from === "tail") return empty("Waiting for new messages.", "They appear here as they are written, at most 50 a second.");
  return empty("There are no messages.", `Send one here, or with: echo hello | penstock produce ${topic}`);
}

function controls(from, context, change) {
  if (from === "offset") {
    return [
      field("Partition", h("input", { type: "number", min: "0", value: context.query.partition || "0", on: { change: (event) => change({ partition: event.target.value }) } })),
      field("Offset", h("input", { type: "number", min: "0", value: context.query.offset || "0", on: { change: (event) => change({ offset: event.target.value }) } })),
    ];
  }
  if (from === "time") return field("Time", h("input", { type: "datetime-local", step: "1", value: context.query.time || "", on: { change: (event) => change({ time: event.target.value }) } }));
  const path = field("Columns", h("input", { placeholder: "user.id, total", value: context.query.columns || "", "aria-label": "Columns by JSON path", on: { change: (event) => change({ columns: event.target.value }) } }));
  if (from !== "search") return path;
  return [h("input", { type: "search", class: "long", placeholder: "Search messages", "aria-label": "Search messages", value: context.query.q || "", on: { change: (event) => change({ q: event.target.value }) } }), path];
}

const REASONS = { complete: "the whole topic was searched", limit: "the limit of matches is reached", bytes: "the budget of bytes is used up", seconds: "the budget of time is used up" };

function progress({ progress: event, search: running }) {
  if (!event) return null;
  const text = `${count(event.matches)} found in ${count(event.scanned_records)} messages, ${bytes(event.scanned_bytes)}, ${duration(event.seconds * 1000)}`;
  return h("div", { class: "progress", role: "status" },
    h("progress", { value: String(event.fraction), max: "1", "aria-label": "Progress of the search" }),
    h("span", null, event.reason ? `${text}: ${REASONS[event.reason]}` : text),
    event.reason || !running ? null : button("Stop", () => running.abort(), { class: "plain" }));
}

function columns(topic, context, hidden) {
  const paths = (context.query.columns || "").split(",").map((path) => path.trim()).filter(Boolean).slice(0, 8);
  const chosen = paths.map((path) => ({ name: path, title: path, cell: (row) => (hidden ? "hidden" : visible(valueAt(row.value, path).slice(0, 200))) }));
  return [
    { name: "time", title: "Time", cell: (row) => h("span", { title: exact(row.timestamp_ms) }, when(row.timestamp_ms)) },
    { name: "place", title: "Partition, offset", align: "right", cell: (row) => link(["topics", topic, String(row.partition), String(row.offset)], {}, `${row.partition} · ${count(row.offset)}`) },
    { name: "key", title: "Key", wide: true, cell: (row) => (row.key_base64 !== undefined ? "binary" : row.key === null ? h("span", { class: "muted" }, "none") : visible(row.key.slice(0, 80))) },
    ...(chosen.length ? chosen : [{ name: "value", title: "Value", class: "value", cell: (row) => (hidden ? h("span", { class: "muted" }, `hidden, ${bytes(row.size)}`) : summary(row)) }]),
    { name: "size", title: "Size", align: "right", wide: true, cell: (row) => bytes(row.size) },
  ];
}

// Open the form that sends a message; `original` fills it in.
export function send(topic, original) {
  const values = { key: original?.key ?? "", value: original?.value ?? "", isTombstone: false, headers: (original?.headers ?? []).map(({ name, value }) => `${name}: ${value ?? ""}`).join("\n") };
  const target = url(["v1", "topics", topic, "messages"]);
  const body = (given) => {
    const headers = Object.fromEntries(given.headers.split("\n").filter((line) => line.includes(":")).map((line) => [line.slice(0, line.indexOf(":")).trim(), line.slice(line.indexOf(":") + 1).trim()]));
    return { messages: [{ key: given.key === "" ? null : given.key, value: given.isTombstone ? null : given.value, ...(Object.keys(headers).length ? { headers } : {}) }] };
  };
  return formDialog({
    title: original ? "Send the message again" : `Send a message to ${topic}`, values, label: "Send",
    fields: (given, update) => {
      const on = (name) => ({ input: (event) => { given[name] = event.target.value; update(); } });
      return [
        field("Key (none if empty)", input(given.key, (value) => { given.key = value; update(); }, { autocomplete: "off" })),
        field("Value", h("textarea", { rows: "6", value: given.value, disabled: given.isTombstone || null, on: on("value") })),
        field("Headers, one in a line as name: value", h("textarea", { rows: "2", value: given.headers, on: on("headers") })),
        h("label", { class: "check" }, h("input", { type: "checkbox", checked: given.isTombstone, on: { change: (event) => { given.isTombstone = event.target.checked; update(); } } }), "tombstone: no value, deletes the key in a compacted topic"),
      ];
    },
    copy: (given) => ({ method: "POST", target, body: body(given), ...produce(topic, body(given).messages[0]) }),
    act: (given) => request("POST", target, body(given)),
  });
}

// The penstock command that sends a message, with the value as its input. Pure.
export function produce(topic, { key, value, headers = {} }) {
  const named = Object.entries(headers).flatMap(([name, text]) => ["--header", `${name}=${text}`]);
  return { penstock: ["produce", topic, "--format", "file", ...(key === null ? [] : ["--key", key]), ...named, ...(value === null ? ["--tombstones"] : [])], input: value ?? "" };
}
