// Numbers, sizes, durations and times as people read them. Pure.

const UNITS = ["B", "KB", "MB", "GB", "TB", "PB"];
const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const UNKNOWN = "–";

export function count(value) {
  return value === null || value === undefined ? UNKNOWN : Math.round(value).toLocaleString("en-US");
}

export function bytes(value) {
  if (value === null || value === undefined) return UNKNOWN;
  let unit = 0;
  let rest = Math.abs(value);
  while (rest >= 1000 && unit < UNITS.length - 1) {
    rest /= 1000;
    unit++;
  }
  const text = unit === 0 || rest >= 100 ? Math.round(rest) : rest.toFixed(1);
  return `${value < 0 ? "-" : ""}${text} ${UNITS[unit]}`;
}

export function rate(value) {
  if (value === null || value === undefined) return UNKNOWN;
  if (value === 0) return "0/s";
  return value < 10 ? `${value.toFixed(1)}/s` : `${count(value)}/s`;
}

export function byteRate(value) {
  return value === null || value === undefined ? UNKNOWN : `${bytes(value)}/s`;
}

export function duration(ms) {
  if (ms === null || ms === undefined || ms < 0) return ms < 0 ? "unlimited" : UNKNOWN;
  if (ms < SECOND) return `${Math.round(ms)} ms`;
  if (ms < MINUTE) return `${trim(ms / SECOND)} s`;
  if (ms < HOUR) return `${trim(ms / MINUTE)} min`;
  if (ms < 2 * DAY) return `${trim(ms / HOUR)} h`;
  return `${trim(ms / DAY)} days`;
}

function trim(value) {
  return value >= 10 ? String(Math.round(value)) : String(Math.round(value * 10) / 10);
}

// A time relative to now: `12 s ago`, `in 3 min`.
export function relative(ms, now = Date.now()) {
  if (ms === null || ms === undefined || ms < 0) return UNKNOWN;
  const distance = now - ms;
  if (Math.abs(distance) < SECOND) return "now";
  return distance > 0 ? `${duration(distance)} ago` : `in ${duration(-distance)}`;
}

export function exact(ms) {
  if (ms === null || ms === undefined || ms < 0 || ms > 8.64e15) return UNKNOWN;
  return new Date(ms).toISOString().replace("T", " ").replace("Z", " UTC");
}

export function clock(ms) {
  return new Date(ms).toTimeString().slice(0, 8);
}

// Text without control characters and bidirectional marks, each of which becomes a visible sign.
export function visible(text) {
  return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]/g,
    (sign) => `\u27e8${sign.codePointAt(0).toString(16).padStart(4, "0")}\u27e9`);
}

export function shorten(text, limit) {
  return text.length <= limit ? text : `${text.slice(0, limit)}…`;
}
