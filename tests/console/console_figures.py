"""Figures of the console with many topics and groups, for docs/performance.md. Run by `make console-figures`.

Starts a broker, creates the topics and groups, and measures lists over HTTP, the topics page in Chromium, a search in
messages, the processor time that open tabs cost the broker, and the time of a producer's writes beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from browser import open_browser
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support.broker_process import BrokerProcess, wait_for_http

TOPICS_PER_REQUEST = 500
VALUE_BYTES = 1_000
LISTS = (
    "/v1/topics?limit=50",
    "/v1/topics?limit=50&search=topic-0123",
    "/v1/topics?limit=50&sort=bytes",
    "/v1/groups?limit=50",
    "/v1/groups?limit=50&sort=lag",
)
FILTER = """async (text) => {
  const input = document.querySelector("input[type=search]");
  const started = performance.now();
  input.value = text;
  input.dispatchEvent(new Event("input", { bubbles: true }));
  const isShown = () => {
    const rows = [...document.querySelectorAll("tbody tr:not(.spacer)")];
    return rows.length > 0 && rows.every((row) => row.textContent.includes(text));
  };
  while (!isShown()) await new Promise((resolve) => requestAnimationFrame(resolve));
  return performance.now() - started;
}"""


def fill(broker: BrokerProcess, http: httpx.Client, topics: int, groups: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    names = [f"topic-{number:05d}" for number in range(topics)]
    for first in range(0, topics, TOPICS_PER_REQUEST):
        made = admin.create_topics([NewTopic(name, 1) for name in names[first : first + TOPICS_PER_REQUEST]])
        for future in made.values():
            future.result(60)
    for number in range(groups):
        body = {"topic": names[number % topics], "to": "earliest"}
        http.post(f"/v1/groups/group-{number:04d}/reset", json=body).raise_for_status()
    deadline = time.monotonic() + 60
    while http.get("/v1/topics?limit=1").json()["total"] < topics and time.monotonic() < deadline:
        time.sleep(0.2)


def timed(work: Callable[[], Any], rounds: int = 30) -> dict[str, float]:
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        taken.append((time.perf_counter() - started) * 1_000)
    return {"median_ms": round(statistics.median(taken), 1), "max_ms": round(max(taken), 1)}


def page_figures(base: str, topics: int) -> dict[str, Any]:
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(base)
        opened = []
        for _ in range(5):
            page.goto("about:blank")
            started = time.perf_counter()
            page.goto(f"{base}#/topics", wait_until="commit")
            page.locator("tbody tr:not(.spacer)").first.wait_for()
            opened.append((time.perf_counter() - started) * 1_000)
        rows = page.evaluate("document.querySelectorAll('tbody tr').length")
        filtered = [
            page.evaluate(FILTER, f"{number:05d}") for number in range(7, topics, max(1, topics // 7))
        ]
        return {
            "topics_page_ms": {"median": round(statistics.median(opened)), "max": round(max(opened))},
            "filter_ms": {"median": round(statistics.median(filtered)), "max": round(max(filtered))},
            "rows_in_the_document": rows,
        }


def tab_figures(base: str, process_id: int, tabs: int, seconds: float) -> dict[str, float]:
    """Processor time of the broker, in percent of a core: without tabs, and for each visible and each hidden one."""
    alone = _load(process_id, seconds)
    with open_browser() as browser:
        contexts = [
            browser.new_context() for _ in range(tabs)
        ]  # tabs of one window would be hidden but for one
        for context in contexts:
            context.new_page().goto(f"{base}#/")
        time.sleep(3)
        shown = _load(process_id, seconds)
    return {"idle_percent": round(alone, 2), "one_tab_percent": round((shown - alone) / tabs, 2)}


def producer_figures(
    base: str, bootstrap: str, tabs: int, seconds: float = 10, rounds: int = 3
) -> dict[str, Any]:
    """Time of single writes, 200 a second: without tabs, beside tabs of a browser, and beside event streams alone.

    A browser with ten tabs takes processor time of its own. The streams alone show what the broker's work costs.
    """
    alone, beside_tabs, beside_streams = [], [], []
    for _ in range(rounds):
        alone.append(_write_times(bootstrap, seconds))
        with open_browser() as browser:
            for _ in range(tabs):
                page = browser.new_context().new_page()
                with page.expect_request(re.compile("/v1/live")) as live:
                    page.goto(f"{base}#/")
            time.sleep(3)
            stream = live.value.url
            beside_tabs.append(_write_times(bootstrap, seconds))
        with ExitStack() as streams:
            for _ in range(tabs):
                streams.enter_context(_reading(stream))
            beside_streams.append(_write_times(bootstrap, seconds))
    return {
        "alone_ms": _medians(alone),
        "beside_tabs_ms": _medians(beside_tabs),
        "beside_event_streams_ms": _medians(beside_streams),
    }


def _write_times(bootstrap: str, seconds: float) -> list[float]:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    taken: list[float] = []
    started = time.perf_counter()
    due = started
    while due < started + seconds:
        producer.poll(max(0, due - time.perf_counter()))
        sent = time.perf_counter()
        producer.produce(
            "timed", b"x" * 100, on_delivery=lambda *_, sent=sent: taken.append(time.perf_counter() - sent)
        )
        while producer.poll(0.001) == 0:
            pass
        due += 0.005
    producer.flush(10)
    return sorted(taken[len(taken) // 10 :])


def _medians(rounds: list[list[float]]) -> dict[str, float]:
    """Median over the rounds of the p50 and the p99, in milliseconds."""
    return {
        name: round(statistics.median(times[int(len(times) * share)] for times in rounds) * 1_000, 2)
        for name, share in (("p50", 0.5), ("p99", 0.99))
    }


@contextmanager
def _reading(url: str) -> Iterator[None]:
    """An event stream that a thread of its own reads."""
    with httpx.stream("GET", url, timeout=None) as response:
        reader = threading.Thread(target=_read_all, args=(response,), daemon=True)
        reader.start()
        yield


def _read_all(response: httpx.Response) -> None:
    with suppress(httpx.HTTPError, httpx.StreamError):
        for _ in response.iter_raw():
            pass


def _load(process_id: int, seconds: float) -> float:
    before = _cpu_seconds(process_id)
    time.sleep(seconds)
    return (_cpu_seconds(process_id) - before) / seconds * 100


def _cpu_seconds(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def search_figures(broker: BrokerProcess, http: httpx.Client, megabytes: int) -> dict[str, float]:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "queue.buffering.max.kbytes": 200_000})
    value = json.dumps({"text": "x" * (VALUE_BYTES - 12)})
    for _ in range(megabytes * 1_000_000 // VALUE_BYTES):
        while True:
            try:
                producer.produce("searched", value)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(120)
    started = time.perf_counter()
    body = {"text": "no message has this", "max_bytes": 1 << 30, "max_seconds": 60}
    answer = http.post("/v1/topics/searched/search", json=body, timeout=120)
    seconds = time.perf_counter() - started
    answer.raise_for_status()
    return {"megabytes_per_second": round(megabytes / seconds, 1), "seconds": round(seconds, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--tabs", type=int, default=10)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as data:
        broker = BrokerProcess(Path(data), ("durability=os", "num.partitions=1"))
        broker.start()
        try:
            wait_for_http(broker.http_port)
            origin = f"http://127.0.0.1:{broker.http_port}"
            with httpx.Client(base_url=origin, timeout=120) as http:
                fill(broker, http, chosen.topics, chosen.groups)
                figures: dict[str, Any] = {path: timed(partial(http.get, path)) for path in LISTS}
                figures |= page_figures(f"{origin}/console", chosen.topics)
                figures["search"] = search_figures(broker, http, chosen.megabytes)
                figures["producer"] = producer_figures(f"{origin}/console", broker.bootstrap, chosen.tabs)
                figures["tabs"] = tab_figures(f"{origin}/console", broker.pid, chosen.tabs, 10)
            print(json.dumps(figures, indent=2))
        finally:
            broker.kill()


if __name__ == "__main__":
    main()
