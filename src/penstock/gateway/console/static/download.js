// Messages as a file: JSON lines or CSV.

export function jsonLines(messages) {
  return messages.map((message) => JSON.stringify(message)).join("\n") + "\n";
}

// CSV with a quote around every field; a leading sign that a spreadsheet would run gets an apostrophe. Pure.
export function csv(messages) {
  const rows = messages.map((message) => [
    message.partition, message.offset, message.timestamp, message.key ?? message.key_base64 ?? "", message.value ?? message.value_base64 ?? "",
    message.headers.map(({ name, value, value_base64: base64 }) => `${name}=${value ?? base64 ?? ""}`).join("; "),
  ]);
  return [["partition", "offset", "timestamp", "key", "value", "headers"], ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function cell(value) {
  const text = String(value);
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return `"${safe.replaceAll('"', '""')}"`;
}

export function save(name, type, text) {
  const target = URL.createObjectURL(new Blob([text], { type }));
  const anchor = document.createElement("a");
  anchor.href = target;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(target), 10_000);
}
