// Tests of the console's modules that need no document; `test_console_modules.py` runs them where there is Node.js.

import assert from "node:assert/strict";
import test from "node:test";

const load = (name) => import(`${process.env.CONSOLE_FILES}/${name}`);
const { Store } = await load("store.js");
const { niceMaximum, points } = await load("chart.js");
const { ROW_HEIGHT, visibleRange } = await load("table.js");
const format = await load("format.js");
const { address, match, parse } = await load("router.js");
const { curl, penstock, quote } = await load("command.js");
const content = await load("content.js");
const { csv, jsonLines } = await load("download.js");
const { isHidden, setHidden } = await load("hiding.js");
const { Live } = await load("live.js");
const { isNarrower, ServerList } = await load("list.js");
const { PER_SECOND, Tail } = await load("tail.js");
const { parseEvent, url } = await load("api.js");
const { produce } = await load("pages/topic_messages.js");
const { parseSearch, searchWords } = await load("pages/message_search.js");
const { resetBody, resetWords } = await load("pages/group_reset.js");
const { lineOf } = await load("pages/queue_text.js");
const { entityOf, entityText, quotaChanges } = await load("pages/access_quotas.js");
const { missing } = await load("rights.js");
const { queueSettings, settingOptions } = await load("pages/queues.js");

test("store calls listeners once for several changes", () => {
  const work = [];
  const store = new Store({ a: 1 }, (each) => work.push(each));
  const seen = [];
  const leave = store.subscribe((values) => seen.push({ ...values }));
  store.set({ a: 1 });
  assert.equal(work.length, 0);
  store.set({ a: 2 });
  store.set({ b: 3 });
  assert.equal(work.length, 1);
  work.pop()();
  assert.deepEqual(seen, [{ a: 2, b: 3 }]);
  leave();
  store.touch();
  work.pop()();
  assert.equal(seen.length, 1);
});

test("table shows the rows on the screen and a few around them", () => {
  assert.deepEqual(visibleRange(0, 10 * ROW_HEIGHT, 10_000), { first: 0, last: 16 });
  const middle = visibleRange(5_000 * ROW_HEIGHT, 20 * ROW_HEIGHT, 10_000);
  assert.ok(middle.first <= 5_000 && middle.last >= 5_020 && middle.last - middle.first < 40);
  assert.deepEqual(visibleRange(99_999, 500, 0), { first: 0, last: 0 });
  assert.equal(visibleRange(10_000 * ROW_HEIGHT, 500, 3).last, 3);
});

test("chart has round scales and gaps", () => {
  assert.deepEqual([0, 3, 17, 100, 0.04].map(niceMaximum), [1, 5, 20, 100, 0.05]);
  const box = { left: 0, top: 0, width: 10, height: 10 };
  assert.deepEqual(points([0, null, 10], 10, box), [{ x: 0, y: 10 }, null, { x: 10, y: 0 }]);
});

test("figures are short and exact times are complete", () => {
  assert.equal(format.bytes(0), "0 B");
  assert.equal(format.bytes(1_234_567), "1.2 MB");
  assert.equal(format.rate(0.25), "0.3/s");
  assert.equal(format.duration(90_000), "1.5 min");
  assert.equal(format.duration(-1), "unlimited");
  assert.equal(format.relative(1_000, 13_000), "12 s ago");
  assert.equal(format.exact(0), "1970-01-01 00:00:00.000 UTC");
  assert.equal(format.exact(-1), "–");
});

test("control characters and bidirectional marks become visible", () => {
  assert.equal(format.visible("a\u202eb\u0000c\nd"), "a⟨202e⟩b⟨0000⟩c\nd");
});

test("addresses carry any name and lead back to it", () => {
  const pages = [{ path: "/topics" }, { path: "/topics/:topic" }, { path: "/topics/:topic/:partition/:offset" }];
  const name = "a/b?c#d %é";
  const { path, query } = parse(address(["topics", name], { tab: "x&y", empty: "" }));
  assert.deepEqual(query, { tab: "x&y" });
  assert.equal(match(pages, path).params.topic, name);
  assert.equal(match(pages, "/nowhere"), null);
  assert.equal(parse("").path, "/");
  assert.equal(match(pages, "/topics/%E0%A4%A").params.topic, "%E0%A4%A");
});

test("commands quote what a shell would read", () => {
  assert.equal(quote("it's; rm -rf $HOME"), `'it'\\''s; rm -rf $HOME'`);
  assert.equal(penstock(["topic", "delete", "a b"]), "penstock topic delete 'a b'");
  assert.equal(curl({ method: "DELETE", target: "/v1/topics/a" }, "http://h"), "curl -s -X DELETE http://h/v1/topics/a");
  assert.match(curl({ method: "POST", target: "/x", body: { a: "'" } }, "http://h"), /-d '\{"a":"'\\''"\}'$/);
});

test("content is shown in bounds whatever it is", () => {
  assert.equal(content.jsonOf("[".repeat(10_000) + "]".repeat(10_000)), undefined);
  assert.equal(content.jsonOf("hello"), undefined);
  assert.deepEqual(content.jsonOf(' {"a": 1}'), { a: 1 });
  assert.equal(content.valueAt('{"user": {"items": [{"sku": "x"}]}}', "$.user.items[0].sku"), "x");
  assert.equal(content.valueAt('{"a": 1}', "constructor.name"), "");
  assert.equal(content.summary({ value: null }), "tombstone");
  assert.ok(content.summary({ value: "x".repeat(10_000_000), size: 1 }).length <= 201);
  assert.deepEqual(content.hexLines(new Uint8Array([0, 65])), ["000000  00 41                                            .A"]);
  assert.deepEqual([...content.bytesOf({ value_base64: "AEE=" }, "value")], [0, 65]);
});

test("downloads are lines that a spreadsheet does not run", () => {
  const message = { partition: 0, offset: 1, timestamp: "t", key: "=1+1", value: 'say "hi"', headers: [{ name: "h", value: "v" }] };
  assert.equal(csv([message]).split("\r\n")[1], `"0","1","t","'=1+1","say ""hi""","h=v"`);
  assert.equal(jsonLines([message, message]).trim().split("\n").length, 2);
});

test("patterns hide topics by their whole name", () => {
  setHidden(["payments", "*.private", "a+b"]);
  assert.ok(isHidden("payments") && isHidden("x.private") && isHidden("a+b"));
  assert.ok(!isHidden("payments2") && !isHidden("private") && !isHidden("aab"));
});

class FakeSource {
  constructor(target) {
    this.target = target;
    FakeSource.opened.push(this);
  }
  close() {
    this.isClosed = true;
  }
}

test("one stream is open, and none while the tab is hidden", () => {
  FakeSource.opened = [];
  let hidden = false;
  const seen = [];
  const live = new Live((figures) => seen.push(figures), (target) => new FakeSource(target), () => hidden);
  live.want({ topics: ["a", "b"] });
  live.want({ topics: ["a", "b"] });
  assert.deepEqual(FakeSource.opened.map((each) => each.target), ["/v1/live?topics=a%2Cb"]);
  FakeSource.opened[0].onmessage({ data: '{"time_ms": 1}' });
  assert.deepEqual(seen, [{ time_ms: 1 }]);
  hidden = true;
  live.apply();
  assert.ok(FakeSource.opened[0].isClosed);
  hidden = false;
  live.apply();
  live.want(null);
  assert.equal(FakeSource.opened.length, 2);
  assert.ok(FakeSource.opened[1].isClosed);
});

test("tail shows a bounded number a second and counts the rest", () => {
  FakeSource.opened = [];
  let now = 0;
  const tail = new Tail("t", () => {}, (target) => new FakeSource(target), () => now);
  for (let number = 0; number < 1000; number++) tail.take(JSON.stringify({ number }));
  assert.equal(tail.messages.length, PER_SECOND);
  assert.equal(tail.skipped, 1000 - PER_SECOND);
  now = 1000;
  tail.take('{"number": 1}');
  assert.equal(tail.messages[0].number, 1);
  for (now = 2000; now < 60_000; now += 1000) for (let each = 0; each < 50; each++) tail.take("{}");
  assert.equal(tail.messages.length, 500);
});

test("list drops answers to older searches and loads the next page once", async () => {
  const pending = [];
  const context = { signal: null, update: () => {} };
  const list = new ServerList(["v1", "topics"], "topics", context, (target) => new Promise((resolve) => pending.push({ target, resolve })));
  const first = list.load({ search: "a" });
  const second = list.load({ search: "ab" });
  pending[1].resolve({ topics: [{ name: "ab" }], total: 2, cursor: "next" });
  pending[0].resolve({ topics: [{ name: "old" }], total: 9, cursor: null });
  await Promise.all([first, second]);
  assert.deepEqual(list.rows, [{ name: "ab" }]);
  const more = list.more();
  list.more();
  assert.equal(pending.length, 3);
  assert.match(pending[2].target, /cursor=next/);
  pending[2].resolve({ topics: [{ name: "abc" }], total: 2, cursor: null });
  await more;
  assert.deepEqual(list.rows.map((row) => row.name), ["ab", "abc"]);
  list.refresh([{ name: "abc", bytes: 5 }], "name");
  assert.equal(list.rows[1].bytes, 5);
});

test("a longer search shows rows that are there before the server answers", async () => {
  const context = { signal: null, update: () => {} };
  const rows = [{ name: "orders" }, { name: "Order.log" }, { name: "clicks" }];
  const list = new ServerList(["v1", "topics"], "topics", context, async () => ({ topics: rows, total: 3, cursor: null }));
  await list.load({ search: "", sort: "name" });
  list.fetchPage = () => new Promise(() => {});
  list.load({ search: "order", sort: "name" });
  assert.deepEqual(list.rows.map((row) => row.name), ["orders", "Order.log"]);
  list.load({ search: "order nothing", sort: "name" });
  assert.equal(list.rows.length, 2, "no match is left to the server");
  assert.ok(!isNarrower({ search: "ab", sort: "bytes" }, { search: "a", sort: "name" }));
  assert.ok(!isNarrower({ search: "b" }, { search: "a" }));
});

test("quotas change what differs, and an empty field removes one", () => {
  const none = { producer_byte_rate: "", consumer_byte_rate: "", request_percentage: "", controller_mutation_rate: "", connection_creation_rate: "" };
  assert.deepEqual(quotaChanges({ producer_byte_rate: 5, consumer_byte_rate: 7 }, { ...none, consumer_byte_rate: "7", request_percentage: "20" }), { producer_byte_rate: null, request_percentage: 20 });
  assert.deepEqual(entityOf({ user: "ann", client_id: "*", ip: "" }), { user: "ann", client_id: null });
  assert.equal(entityText({ user: "ann", client_id: null }), "user ann, client id (default)");
  assert.equal(missing({ operation: "DELETE", kind: "TOPIC", name: "orders" }), "You need the right DELETE on topic orders.");
});

test("search field knows keys, headers, paths and words", () => {
  assert.deepEqual(parseSearch("late order"), { text: "late order" });
  assert.deepEqual(parseSearch('key:17 header:trace=abc json:$.user.id=7 regex:a+ partition:2'), {
    key: "17", header: "trace", header_value: "abc", json_path: "$.user.id", json_value: "7", regex: "a+", partition: 2,
  });
  assert.deepEqual(parseSearch("json:$.a"), { json_path: "$.a" });
  assert.deepEqual(parseSearch(`filter:"headers.region == 'eu'" since:2h until:1970-01-01T00:00:09Z late`, 7_200_001), {
    filter: "headers.region == 'eu'", from_ms: 1, to_ms: 9_000, text: "late",
  });
  assert.deepEqual(parseSearch("since:yesterday"), { text: "since:yesterday" });
});

test("reset form makes one kind of request", () => {
  const values = { topic: "t", partition: "", time: "1970-01-01T00:00:01Z", shift: "-5", offset: "7", group: "g" };
  assert.deepEqual(resetBody({ ...values, way: "earliest" }), { topic: "t", to: "earliest" });
  assert.deepEqual(resetBody({ ...values, way: "shift", partition: "1" }), { topic: "t", shift: -5, partitions: [1] });
  assert.deepEqual(resetBody({ ...values, way: "time" }), { topic: "t", time_ms: 1000 });
  assert.deepEqual(resetBody({ ...values, way: "offset", partition: "1" }), { offsets: [{ topic: "t", partition: 1, offset: 7 }] });
  assert.deepEqual(resetBody({ ...values, way: "group" }), { from_group: "g", topic: "t" });
});

test("forms and searches are shown as penstock commands", () => {
  const values = { topic: "t", partition: "", time: "1970-01-01T00:00:01Z", shift: "-5", offset: "7", group: "other" };
  const reset = (way, more = {}) => penstock(resetWords("g", { ...values, way, ...more }));
  assert.equal(reset("earliest"), "penstock group reset g --topic t --to-earliest --execute");
  assert.equal(reset("shift", { partition: "1" }), "penstock group reset g --topic t:1 --shift -5 --execute");
  assert.equal(reset("time"), "penstock group reset g --topic t --to-time 1970-01-01T00:00:01.000Z --execute");
  assert.equal(reset("offset", { partition: "1" }), "penstock group reset g --topic t:1 --to-offset 7 --execute");
  assert.equal(reset("group", { topic: "" }), "penstock group reset g --all-topics --from-group other --execute");
  assert.equal(penstock(searchWords("t", parseSearch("json:$.a=1 regex:a+ it's"))), "penstock search t --regex a+ --json-path '$.a=1' -- 'it'\\''s'");
  const sent = produce("t", { key: "k", value: "it's", headers: { a: "1" } });
  assert.equal(penstock(sent.penstock, sent.input), "printf %s 'it'\\''s' | penstock produce t --format file --key k --header a=1");
});

test("events and targets are read and written as the gateway does", () => {
  assert.deepEqual(parseEvent('id: 1\ndata: {"a": 1}'), { name: "message", data: { a: 1 } });
  assert.equal(parseEvent("event: problem\ndata: {}").name, "problem");
  assert.equal(parseEvent(":").data, undefined);
  assert.equal(url(["v1", "groups", "a/b"], { x: "", y: 1 }), "/v1/groups/a%2Fb?y=1");
});

test("forms of queues send the settings that were given, and the command has the same", () => {
  assert.deepEqual(queueSettings({ lock_s: "30", max_attempts: "", back_off: "1s,10s", dead_letter: "" }), { lock_s: 30, back_off: "1s,10s" });
  assert.deepEqual(settingOptions({ lock_s: 30, dead_letter: "dead" }), ["--lock", "30s", "--dead-letter", "dead"]);
});

test("values of queues are one bounded line of text", () => {
  assert.equal(lineOf({ value: { id: 7 } }, "value"), '{"id":7}');
  assert.equal(lineOf({ value: "a\n  b" }, "value"), "a b");
  assert.equal(lineOf({ key: null }, "key"), "–");
  assert.equal(lineOf({ value_base64: "AAAA" }, "value"), "binary, 3 bytes");
  assert.ok(lineOf({ value: "x".repeat(10_000) }, "value").length <= 201);
});
