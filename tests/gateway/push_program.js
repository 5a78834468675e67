// A page's script, in a browser or in Node: reads so many events, and sends what it saw to whoever started it.
const parameters = new URLSearchParams(globalThis.location ? location.search : process.argv[2]);
const seen = [];
// Node ends while an EventSource waits to come again.
const alive = setInterval(() => {}, 1000);
const source = new EventSource(parameters.get("events"));
source.onmessage = (event) => {
  seen.push([event.lastEventId, JSON.parse(event.data).value]);
  if (seen.length === Number(parameters.get("count"))) {
    source.close();
    clearInterval(alive);
    fetch(parameters.get("report"), { method: "POST", body: JSON.stringify(seen) });
  }
};
