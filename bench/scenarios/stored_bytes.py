"""100 GB of log with its indexes: bytes read at a start, and rates at its end compared with an empty log."""

from __future__ import annotations

import psutil

from bench.comparison import Bar, Row
from bench.context import Context
from bench.measure import MB, Spread, rss_mb
from bench.page_cache import drop
from bench.scenarios.consume import measure_consume
from bench.scenarios.produce import PARTITIONS, measure_produce
from bench.servers import Penstock
from bench.sparse_log import SEGMENT_RECORDS, grow
from bench.topics import create_topic

GB_STORED = 100
SEGMENTS = GB_STORED // PARTITIONS
NAME = f"{GB_STORED} GB stored"
WITHIN = Bar("value", "at least", 0.9)


def hundred_gigabytes(context: Context) -> list[Row]:
    """A full and an empty broker, both running, in turns."""
    with Penstock() as full, Penstock() as empty:
        for server in (full, empty):
            create_topic(server, "t", PARTITIONS)
        context.say(f"{NAME}: making indexes")
        index_mb = _fill(full)
        rows = [
            Row(NAME, "index files", "MB", Spread.of([index_mb])),
            Row(NAME, "read from disk at start", "MB", Spread.of([_read_mb(full)])),
            Row(
                NAME,
                "start to first answer",
                "s",
                Spread.of([full.start_s]),
                bar=Bar("value", "at most", 1.0),
            ),
            Row(NAME, "resident after start", "MB", Spread.of([rss_mb(full.pid)])),
        ]
        return rows + _rates(context, full, empty)


def _fill(server: Penstock) -> float:
    """Stop, add the segments, remove them from the page cache, start; returns the megabytes of index."""
    server.stop()
    data_dir = server.directory / "data"
    index_bytes = grow(data_dir, "t", SEGMENTS)
    drop(data_dir.rglob("*.index"))
    server.start()
    return index_bytes / MB


def _read_mb(server: Penstock) -> float:
    return float(psutil.Process(server.pid).io_counters().read_bytes / MB)


def _rates(context: Context, full: Penstock, empty: Penstock) -> list[Row]:
    count = context.scaled(500_000, 150_000)
    read = 0
    ratios: dict[str, list[float]] = {"produce": [], "consume": []}
    for number in range(-context.warm_ups, context.rounds):
        context.say(f"{NAME}: round {number + 1} of {context.rounds}")
        produced = [_produce(server, count) for server in (full, empty)]
        starts = (SEGMENT_RECORDS * SEGMENTS, 0)
        read += count
        consumed = [
            measure_consume(server, "t", read, offset=start)["mb_per_s"]
            for server, start in zip((full, empty), starts, strict=True)
        ]
        if number >= 0:
            ratios["produce"].append(produced[0] / produced[1])
            ratios["consume"].append(consumed[0] / consumed[1])
    return [
        Row(NAME, f"{what} rate, times that of an empty log", "x", Spread.of(found), bar=WITHIN)
        for what, found in ratios.items()
    ]


def _produce(server: Penstock, count: int) -> float:
    return measure_produce(server, "t", {"count": count, "size": 1_024})["mb_per_s"]
