// Topics whose values the console does not show: the patterns of `console.hide.values`, `*` for any characters.

let patterns = [];

// Take the patterns of the settings. A pattern matches the whole name.
export function setHidden(texts) {
  patterns = texts.map((text) => new RegExp(`^${text.split("*").map(escape).join(".*")}$`));
}

function escape(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

export function isHidden(topic) {
  return patterns.some((pattern) => pattern.test(topic));
}
