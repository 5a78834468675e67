// A windowed table: however many rows there are, the document has those on the screen and a few around them.

import { h } from "./render.js";

export const ROW_HEIGHT = 37;
const AROUND = 6;
const NEAR_END = 30;

// The rows to show for a scroll position. Pure.
export function visibleRange(scrollTop, height, total) {
  const first = Math.max(0, Math.floor(scrollTop / ROW_HEIGHT) - AROUND);
  const last = Math.min(total, Math.ceil((scrollTop + height) / ROW_HEIGHT) + AROUND);
  return { first: Math.min(first, Math.max(0, total - 1)), last: Math.max(last, Math.min(total, first + 1)) };
}

export function tableState() {
  return { scrollTop: 0, height: 560 };
}

// options: state, columns, rows, rowKey, label, update, and optionally sort, onSort, onNearEnd, empty, total.
// A column is {name, title, cell(row), align, sort, wide}; wide columns are left out on narrow screens,
// and hidden titles are read by screen readers alone.
export function table(options) {
  const { state, columns, rows, label, update } = options;
  if (rows.length === 0 && options.empty) return h("div", { class: "empty" }, options.empty);
  const { first, last } = visibleRange(state.scrollTop, state.height, rows.length);
  if (options.onNearEnd && last > rows.length - NEAR_END) queueMicrotask(options.onNearEnd);
  const onScroll = (event) => {
    state.scrollTop = event.currentTarget.scrollTop;
    state.height = event.currentTarget.clientHeight;
    update();
  };
  return h(
    "div",
    { class: "table-frame", tabindex: "0", role: "region", "aria-label": label, on: cached(state, onScroll) },
    h(
      "table",
      { "aria-rowcount": String((options.total ?? rows.length) + 1) },
      h("thead", null, h("tr", null, columns.map((column) => heading(column, options)))),
      h(
        "tbody",
        null,
        spacer("before", first * ROW_HEIGHT, columns.length),
        rows.slice(first, last).map((row, place) => line(row, first + place, options)),
        spacer("after", (rows.length - last) * ROW_HEIGHT, columns.length),
      ),
    ),
  );
}

// One handler object for the life of a table, so that the renderer does not replace listeners at every frame.
function cached(state, onScroll) {
  state.onScroll = onScroll;
  if (!state.handlers) state.handlers = { scroll: (event) => state.onScroll(event) };
  return state.handlers;
}

function spacer(key, height, columns) {
  if (height <= 0) return null;
  return h("tr", { key, class: "spacer", "aria-hidden": "true" }, h("td", { colspan: String(columns), style: { height: `${height}px` } }));
}

function heading(column, options) {
  const isSorted = column.sort && options.sort === column.sort;
  const classes = classesOf(column);
  if (!column.sort || !options.onSort) return h("th", { key: column.name, scope: "col", class: classes }, column.isHidden ? h("span", { class: "hidden-text" }, column.title) : column.title);
  return h(
    "th",
    { key: column.name, scope: "col", class: classes, "aria-sort": isSorted ? (column.sort === "name" ? "ascending" : "descending") : null },
    h(
      "button",
      { type: "button", class: "sort", on: { click: () => options.onSort(column.sort) } },
      column.title,
      h("span", { "aria-hidden": "true", class: "arrow" }, isSorted ? (column.sort === "name" ? " ↑" : " ↓") : ""),
    ),
  );
}

function line(row, place, options) {
  return h(
    "tr",
    { key: options.rowKey(row), "aria-rowindex": String(place + 2) },
    options.columns.map((column) => h("td", { key: column.name, class: classesOf(column) }, column.cell(row))),
  );
}

function classesOf(column) {
  return [column.align === "right" ? "right" : "", column.wide ? "wide" : "", column.class || ""].filter(Boolean).join(" ") || null;
}
