// A line chart on a canvas, with a scale, the times at its ends, and the value under the pointer.

import { h } from "./render.js";
import { clock } from "./format.js";

const PADDING = { top: 10, right: 8, bottom: 20, left: 58 };

// The upper end of a scale for a maximum: 1, 2 or 5 times a power of ten. Pure.
export function niceMaximum(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

// The points of a series inside a box, with gaps as null. Pure.
export function points(values, maximum, box) {
  const step = values.length > 1 ? box.width / (values.length - 1) : 0;
  return values.map((value, place) =>
    value === null ? null : { x: box.left + place * step, y: box.top + box.height * (1 - Math.min(1, value / maximum)) });
}

// options: label, series [{name, values, class}], stepMs, endMs, format(value).
export function chart(options) {
  return h(
    "figure",
    { class: "chart" },
    h("figcaption", null, options.label, legend(options.series)),
    h("canvas", {
      role: "img",
      "aria-label": describe(options),
      mounted: (canvas) => watch(canvas, options),
      updated: (canvas) => draw(canvas, options),
      height: "160",
    }),
  );
}

function legend(series) {
  if (series.length < 2) return null;
  return h("span", { class: "legend" }, series.map((each, place) => h("span", { class: `series-${place}` }, each.name)));
}

function describe(options) {
  const last = options.series.map((each) => {
    const value = [...each.values].reverse().find((one) => one !== null);
    return `${each.name} ${value === undefined ? "no value" : options.format(value)}`;
  });
  return `${options.label}: ${last.join(", ")}`;
}

function watch(canvas, options) {
  const observer = new ResizeObserver(() => draw(canvas, canvas.shown));
  observer.observe(canvas);
  canvas.released = () => observer.disconnect();
  canvas.addEventListener("pointermove", (event) => draw(canvas, canvas.shown, event.offsetX));
  canvas.addEventListener("pointerleave", () => draw(canvas, canvas.shown));
  draw(canvas, options);
}

function draw(canvas, options, pointerX) {
  canvas.shown = options;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (!width || !height) return;
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  const style = getComputedStyle(canvas);
  const box = {
    left: PADDING.left, top: PADDING.top, width: width - PADDING.left - PADDING.right, height: height - PADDING.top - PADDING.bottom,
  };
  const greatest = Math.max(0, ...options.series.flatMap((each) => each.values.filter((value) => value !== null)));
  const maximum = niceMaximum(greatest);
  context.font = "11px system-ui, sans-serif";
  axes(context, box, maximum, options, style);
  options.series.forEach((each, place) => {
    line(context, points(each.values, maximum, box), box, style.getPropertyValue(`--series-${place}`));
  });
  if (pointerX !== undefined) pointer(context, box, pointerX, options, style);
}

function axes(context, box, maximum, options, style) {
  context.fillStyle = style.getPropertyValue("--muted");
  context.strokeStyle = style.getPropertyValue("--line");
  context.lineWidth = 1;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const share of [0, 0.5, 1]) {
    const y = Math.round(box.top + box.height * (1 - share)) + 0.5;
    context.beginPath();
    context.moveTo(box.left, y);
    context.lineTo(box.left + box.width, y);
    context.stroke();
    context.fillText(options.format(maximum * share), box.left - 6, y);
  }
  const span = (options.series[0]?.values.length ?? 1) - 1;
  context.textBaseline = "top";
  context.textAlign = "left";
  context.fillText(clock(options.endMs - span * options.stepMs), box.left, box.top + box.height + 6);
  context.textAlign = "right";
  context.fillText(clock(options.endMs), box.left + box.width, box.top + box.height + 6);
}

function line(context, places, box, color) {
  context.strokeStyle = color;
  context.lineWidth = 1.75;
  context.lineJoin = "round";
  context.beginPath();
  let isOpen = false;
  for (const place of places) {
    if (place === null) isOpen = false;
    else if (isOpen) context.lineTo(place.x, place.y);
    else {
      context.moveTo(place.x, place.y);
      isOpen = true;
    }
  }
  context.stroke();
}

function pointer(context, box, x, options, style) {
  const length = options.series[0]?.values.length ?? 0;
  const place = Math.round(((x - box.left) / box.width) * (length - 1));
  if (place < 0 || place >= length) return;
  const at = box.left + (place / Math.max(1, length - 1)) * box.width;
  context.strokeStyle = style.getPropertyValue("--muted");
  context.beginPath();
  context.moveTo(at, box.top);
  context.lineTo(at, box.top + box.height);
  context.stroke();
  const values = options.series.map((each) => (each.values[place] === null ? "–" : options.format(each.values[place])));
  const text = `${clock(options.endMs - (length - 1 - place) * options.stepMs)}  ${values.join("  ")}`;
  context.fillStyle = style.getPropertyValue("--text");
  context.textBaseline = "top";
  context.textAlign = at > box.left + box.width / 2 ? "right" : "left";
  context.fillText(text, at + (context.textAlign === "right" ? -6 : 6), box.top);
}
