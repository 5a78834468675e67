"""Delayed messages: the rate at which they are produced, how late they come, and ten million that are pending."""

from __future__ import annotations

import json
import time
from statistics import median
from urllib.request import urlopen

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.comparison import Bar, Row
from bench.context import Context
from bench.driver import Figures, run_driver
from bench.measure import Spread, rss_mb
from bench.servers import Penstock
from bench.topics import TIMEOUT_S

MONTH_MS = 30 * 86_400_000
BATCH_BYTES = 65_536
PAGES = 20
PATIENCE_S = 300.0


def produced(context: Context) -> list[Row]:
    """Messages of 1 KB, plain and delayed by a month, from the raw driver."""
    size = 1_024
    rates: dict[bool, list[float]] = {False: [], True: []}
    with Penstock() as server:
        for number in range(context.rounds):
            for is_delayed in (False, True) if number % 2 else (True, False):
                context.say(f"delay-produce: round {number + 1}, {'delayed' if is_delayed else 'plain'}")
                topic = _create(server, f"produce-{number}-{is_delayed}", 4, is_delayed=is_delayed)
                load = {"count": context.scaled(8_000, 2_000), "size": size, "connections": 4, "in_flight": 5}
                figures = run_driver(
                    "raw_produce",
                    bootstrap=server.bootstrap,
                    topic=topic,
                    partitions=4,
                    records=BATCH_BYTES // size,
                    delay_ms=MONTH_MS if is_delayed else -1,
                    **load,
                )
                rates[is_delayed].append(figures["messages"] / figures["seconds"])
    ratio = [delayed / plain for plain, delayed in zip(rates[False], rates[True], strict=True)]
    return [
        Row("delay-produce", "plain messages", "/s", Spread.of(rates[False])),
        Row("delay-produce", "delayed messages", "/s", Spread.of(rates[True])),
        Row(
            "delay-produce", "delayed, times plain", "x", Spread.of(ratio), bar=Bar("value", "at least", 0.5)
        ),
    ]


def coming_due(context: Context) -> list[Row]:
    """A thousand messages a second come due."""
    found = _due(context, "delay-due", context.scaled(30_000, 10_000), 1_000)
    return [
        _row("delay-due", "late, p50", "p50_ms", found, 5),
        _row("delay-due", "late, p99", "p99_ms", found, 25),
    ]


def at_once(context: Context) -> list[Row]:
    """Twenty thousand messages are due in the same millisecond."""
    found = _due(context, "delay-burst", 20_000, 0)
    return [
        _row("delay-burst", "first is late", "first_ms", found, 50),
        _row("delay-burst", "last is late", "last_ms", found, 1_000),
    ]


def pending(context: Context) -> list[Row]:
    """Millions of pending messages: memory, pages of a list, and due messages after a kill."""
    count = context.scaled(10_000_000, 1_000_000)
    with Penstock() as server:
        before_mb = rss_mb(server.pid)
        topic = _create(server, "pending", 1)
        context.say(f"delay-pending: writing {count} messages")
        records = 500
        load = {"count": count // records, "size": 20, "connections": 1, "in_flight": 5, "records": records}
        place = {"bootstrap": server.bootstrap, "topic": topic, "partitions": 1}
        run_driver("raw_produce", **place, delay_ms=MONTH_MS, **load)
        _await_count(server, topic, count)
        _await_files(server)
        pages = [_page_ms(server, topic) for _ in range(PAGES)]
        context.say("delay-pending: killing the broker")
        _send_due(server, topic)
        server.kill()
        assert server.process is not None
        server.process.wait()
        server.start()
        answered = time.monotonic()
        _await_message(server, topic)
        flowing_s = time.monotonic() - answered
        grown_mb = rss_mb(server.pid) - before_mb
    return [
        Row("delay-pending", "messages", "", Spread.of([float(count)])),
        Row("delay-pending", "memory", "MB", Spread.of([grown_mb]), bar=Bar("value", "at most", 100)),
        Row("delay-pending", "page of a list", "ms", Spread.of(pages), bar=Bar("value", "at most", 50)),
        Row(
            "delay-pending",
            "first due message after the start",
            "s",
            Spread.of([flowing_s]),
            bar=Bar("value", "at most", 3),
        ),
    ]


def _due(context: Context, name: str, count: int, per_s: int) -> list[Figures]:
    found = []
    with Penstock() as server:
        for number in range(context.rounds):
            context.say(f"{name}: round {number + 1} of {context.rounds}")
            topic = _create(server, f"{name}-{number}", 1)
            found.append(
                run_driver("due_consume", bootstrap=server.bootstrap, topic=topic, count=count, per_s=per_s)
            )
    return found


def _row(scenario: str, label: str, key: str, found: list[Figures], limit_ms: float) -> Row:
    bar = Bar("value", "at most", limit_ms)
    return Row(scenario, label, "ms", Spread.of([each[key] for each in found]), bar=bar)


def _create(server: Penstock, name: str, partitions: int, *, is_delayed: bool = True) -> str:
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 4})
    config = {"delivery.delay": "true"} if is_delayed else {}
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(TIMEOUT_S)
    return name


def _list(server: Penstock, topic: str) -> int:
    url = f"http://127.0.0.1:{server.http_port}/v1/topics/{topic}/delayed?limit=100"
    with urlopen(url, timeout=PATIENCE_S) as answer:
        return int(json.load(answer)["count"])


def _await_count(server: Penstock, topic: str, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while _list(server, topic) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"fewer than {count} messages are pending")
        time.sleep(0.2)


def _await_files(server: Penstock) -> None:
    """Wait until the files of delayed messages do not grow any more."""
    sizes: list[int] = []
    while len(sizes) < 5 or len(set(sizes[-5:])) > 1:
        time.sleep(1.0)
        sizes.append(sum(path.stat().st_size for path in server.directory.rglob("*.delays")))


def _page_ms(server: Penstock, topic: str) -> float:
    times = []
    for _ in range(3):
        began = time.perf_counter()
        _list(server, topic)
        times.append((time.perf_counter() - began) * 1_000)
    return median(times)


def _send_due(server: Penstock, topic: str) -> None:
    """Send a message that is due at about the time of the restart."""
    producer = Producer({"bootstrap.servers": server.bootstrap})
    producer.produce(topic, b"due", partition=0, headers=[("penstock-delay-ms", b"500")])
    if producer.flush(TIMEOUT_S):
        raise RuntimeError("the message was not acknowledged")


def _await_message(server: Penstock, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "bench"})
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
    consumer.assign([TopicPartition(topic, 0, max(0, end - 2))])
    message = consumer.poll(PATIENCE_S)
    if message is None or message.error() is not None:
        raise RuntimeError("no message came")
    consumer.close()
