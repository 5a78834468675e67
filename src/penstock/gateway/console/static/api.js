// Requests to the gateway that served this page. A failure is a `Problem` with the text of the problem document.

export class Problem extends Error {
  constructor(status, detail, error) {
    super(detail);
    this.status = status;
    this.error = error || "";
  }
}

const LOST = "The gateway does not answer. It may be restarting, or the network is down.";

// The moment of the last answer, for the notice about a lost connection.
export const contact = { lastAnswer: Date.now(), isLost: false, onChange: () => {} };

// The session of this browser: its user, the token that changes have to send along, and the function that logs in.
export const session = { user: "", csrf: "", renew: null };

function note(isLost) {
  if (!isLost) contact.lastAnswer = Date.now();
  if (contact.isLost !== isLost) {
    contact.isLost = isLost;
    contact.onChange();
  }
}

export function url(segments, query = {}) {
  const path = segments.map((segment) => encodeURIComponent(segment)).join("/");
  const kept = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const search = new URLSearchParams(kept).toString();
  return `/${path}${search ? `?${search}` : ""}`;
}

export async function request(method, target, body, signal, mayRenew = true) {
  const response = await send(method, target, body, signal, mayRenew);
  if (response.status === 204) return null;
  return response.json();
}

export const get = (target, signal) => request("GET", target, undefined, signal);

async function send(method, target, body, signal, mayRenew = true) {
  const options = { method, signal, headers: { "x-penstock-csrf": session.csrf } };
  if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(target, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    note(true);
    throw new Problem(0, LOST);
  }
  note(false);
  if (response.status === 401 && mayRenew && session.renew) {
    await session.renew();
    return send(method, target, body, signal);
  }
  if (!response.ok) throw await explain(response);
  return response;
}

async function explain(response) {
  try {
    const document = await response.json();
    return new Problem(response.status, document.detail || response.statusText, document.error);
  } catch {
    return new Problem(response.status, `${response.status} ${response.statusText}`);
  }
}

// Send a body and yield the data of the server-sent events of the response.
export async function* events(target, body, signal) {
  const response = await send("POST", target, body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = parseEvent(block);
      if (event.name === "problem") throw new Problem(event.data.status, event.data.detail, event.data.error);
      if (event.data !== undefined) yield event.data;
    }
  }
}

export function parseEvent(block) {
  const event = { name: "message", data: undefined };
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) event.name = line.slice(7);
    if (line.startsWith("data: ")) event.data = JSON.parse(line.slice(6));
  }
  return event;
}
