"""Latency of clients beside a reader of cold data and 10 GB of sustained writes, on each server alone.

The noisy clients run at the lowest priority: on one machine they would otherwise take CPU time from the
measured client, and the question is how the broker isolates clients.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from bench.comparison import Bar, Row
from bench.context import Context
from bench.driver import DriverFailed, Figures, finish_driver, run_driver, start_driver
from bench.measure import Spread
from bench.page_cache import drop
from bench.servers import Kafka, Server
from bench.topics import create_topic

GB = 1_000_000_000
LOWEST = 19
WRITE_MB_PER_S = 100
VICTIMS, VICTIM_MESSAGES_PER_S = 10, 200
NAME = "isolation"

Measured = dict[str, list[Figures]]
"""Figures of the victims, without and with noise."""


def noisy_neighbours(context: Context) -> list[Row]:
    measured: dict[str, Measured] = {}
    for make in context.contestants:
        with make() as server:
            assert isinstance(server, Server)
            measured[server.name] = _measure(context, server)
    own = next(name for name in measured if name != Kafka.name)
    return _rows(measured[own], measured.get(Kafka.name))


def _measure(context: Context, server: Server) -> Measured:
    """Write at a fixed rate, first alone, then beside the noise, in turns."""
    sustained = context.scaled(10 * GB, 2 * GB)
    rounds = context.scaled(2, 1)
    seconds = sustained / WRITE_MB_PER_S / 1e6 / rounds
    found: Measured = {"quiet": [], "noisy": []}
    for name in ("victim", "cold", "busy"):
        create_topic(server, name, 4)
    context.say(f"{NAME}: {server.name} writes what will be read cold")
    _write(server, "cold", context.scaled(4_000_000, 1_000_000))
    for number in range(rounds):
        context.say(f"{NAME}: {server.name}, round {number + 1} of {rounds}, quiet")
        found["quiet"].append(victims(server, seconds / 2))
        context.say(f"{NAME}: {server.name}, round {number + 1} of {rounds}, noisy")
        with _noise(server, int(sustained / rounds)):
            found["noisy"].append(victims(server, seconds * 0.8))
    return found


def victims(server: Server, seconds: float) -> Figures:
    load = {"partitions": 4, "writers": VICTIMS, "messages_per_s": VICTIM_MESSAGES_PER_S}
    return run_driver("writers", bootstrap=server.bootstrap, topic="victim", seconds=seconds, **load)


@contextmanager
def _noise(server: Server, sustained_bytes: int) -> Iterator[None]:
    """Writer at a steady high rate, and a reader whose pages are removed from the page cache again and again."""
    stop = threading.Event()
    reader = threading.Thread(target=_read_cold, args=(server, stop))
    writer = _start_writer(server, sustained_bytes)
    reader.start()
    try:
        yield
        finish_driver("produce", writer)
    finally:
        stop.set()
        writer.kill()
        reader.join()


def _start_writer(server: Server, sustained_bytes: int) -> subprocess.Popen[str]:
    load = {"count": sustained_bytes // 1_024, "size": 1_024, "messages_per_s": WRITE_MB_PER_S * 1e6 / 1_024}
    return start_driver(
        "produce", nice=LOWEST, bootstrap=server.bootstrap, topic="busy", partitions=4, **load
    )


def _read_cold(server: Server, stop: threading.Event) -> None:
    while not stop.is_set():
        drop((server.directory / "data").rglob("cold-*/*.log"))
        try:
            run_driver(
                "consume", nice=LOWEST, bootstrap=server.bootstrap, topic="cold", partitions=4, count=900_000
            )
        except DriverFailed:
            if not stop.is_set():
                raise


def _write(server: Server, topic: str, count: int) -> None:
    run_driver("produce", bootstrap=server.bootstrap, topic=topic, partitions=4, count=count, size=1_024)


def _rows(own: Measured, kafka: Measured | None) -> list[Row]:
    rows = [
        Row(NAME, f"{kind}: {key[:-3]}", "ms", _spread(own, kind, key), _spread(kafka, kind, key))
        for kind in ("quiet", "noisy")
        for key in ("p50_ms", "p99_ms")
    ]
    bar = Bar("value", "at most", 2.0)
    return [*rows, Row(NAME, "p99, times that without", "x", _times(own), _times(kafka), bar=bar)]


def _spread(found: Measured | None, kind: str, key: str) -> Spread | None:
    return None if found is None else Spread.of([figures[key] for figures in found[kind]])


def _times(found: Measured | None) -> Spread | None:
    if found is None:
        return None
    pairs = zip(found["noisy"], found["quiet"], strict=True)
    return Spread.of([noisy["p99_ms"] / quiet["p99_ms"] for noisy, quiet in pairs])
