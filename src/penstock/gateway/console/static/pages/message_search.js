// The search field of the messages page: its conditions as a query of the API and as a penstock command. Pure.

const AGES = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

// The time that a text names: 2h ago, or a date; null for other texts.
export function timeOf(text, now) {
  const age = /^(\d+)([smhdw])$/.exec(text);
  const time = age ? now - Number(age[1]) * AGES[age[2]] : Date.parse(text);
  return Number.isNaN(time) ? null : time;
}

// The query of a search field: words as text, or parts as key:17 header:name=value json:$.a=1 regex:... since:2h.
export function parseSearch(text, now = Date.now()) {
  const query = {};
  const words = [];
  for (const word of text.match(/(?:[a-z]+:"[^"]*"|\S)+/g) || []) {
    const match = /^(key|header|json|regex|filter|partition|since|until):(.+)$/.exec(word.replaceAll('"', ""));
    if (!match) words.push(word);
    else if (match[1] === "header" || match[1] === "json") {
      const [, name, value] = /^([^=]+)(?:=(.*))?$/.exec(match[2]) || [null, match[2]];
      query[match[1] === "json" ? "json_path" : "header"] = name;
      if (value) query[match[1] === "json" ? "json_value" : "header_value"] = value;
    } else if (match[1] === "since" || match[1] === "until") {
      const time = timeOf(match[2], now);
      if (time === null) words.push(word);
      else query[match[1] === "since" ? "from_ms" : "to_ms"] = time;
    } else query[match[1]] = match[1] === "partition" ? Number(match[2]) : match[2];
  }
  if (words.length) query.text = words.join(" ");
  return query;
}

// The words of the penstock command that searches a topic with a query.
export function searchWords(topic, query) {
  const withValue = (name, value) => (value === undefined ? name : `${name}=${value}`);
  const options = [
    ["--regex", query.regex], ["--key", query.key], ["--header", query.header === undefined ? undefined : withValue(query.header, query.header_value)],
    ["--json-path", query.json_path === undefined ? undefined : withValue(query.json_path, query.json_value)],
    ["--filter", query.filter], ["--partition", query.partition],
    ["--since", query.from_ms === undefined ? undefined : new Date(query.from_ms).toISOString()],
    ["--until", query.to_ms === undefined ? undefined : new Date(query.to_ms).toISOString()],
  ];
  const given = options.filter(([, value]) => value !== undefined).flat().map(String);
  return ["search", topic, ...given, ...(query.text === undefined ? [] : ["--", query.text])];
}
