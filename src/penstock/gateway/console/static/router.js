// Routes in the fragment of the URL: every state of the console has an address, and no server takes part.
// `#/topics/orders?tab=live` has the path /topics/orders and the query {tab: "live"}.

export function parse(hash) {
  const text = hash.replace(/^#/, "") || "/";
  const at = text.indexOf("?");
  const path = at < 0 ? text : text.slice(0, at);
  const query = Object.fromEntries(new URLSearchParams(at < 0 ? "" : text.slice(at + 1)));
  return { path: path.startsWith("/") ? path : `/${path}`, query };
}

// The address of a path, given as segments that may hold any character, and a query without its empty values.
export function address(segments, query = {}) {
  const path = segments.map((segment) => encodeURIComponent(segment)).join("/");
  const kept = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const search = new URLSearchParams(kept).toString();
  return `#/${path}${search ? `?${search}` : ""}`;
}

// Find the page of a path: its pattern is `/topics/:topic/messages`. Returns the page and its parameters.
export function match(pages, path) {
  const given = path.split("/").filter(Boolean);
  for (const page of pages) {
    const expected = page.path.split("/").filter(Boolean);
    if (expected.length !== given.length) continue;
    const params = {};
    const fits = expected.every((part, place) => {
      if (!part.startsWith(":")) return part === given[place];
      params[part.slice(1)] = decode(given[place]);
      return true;
    });
    if (fits) return { page, params };
  }
  return null;
}

function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
