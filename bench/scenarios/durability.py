"""The default durability: every acknowledgement waits for an fsync, at 1 to 1,000 active partitions.

Also with a delay for every sync, as on slower disks. Synchronous means one writer per partition, all at the
same time, each waiting for its acknowledgement; batched means one producer for all partitions.
"""

from __future__ import annotations

from bench import interpreter
from bench.comparison import Row
from bench.context import Context
from bench.driver import run_driver
from bench.measure import Spread
from bench.scenarios.produce import measure_produce
from bench.scenarios.start import SPREAD
from bench.servers import Penstock
from bench.topics import topic

ACTIVE_PARTITIONS = (1, 100, 1_000)
DELAYS_MS = (0, 1, 5, 10)


def default_durability(context: Context) -> list[Row]:
    rows: list[Row] = []
    for delay_ms in DELAYS_MS:
        program = interpreter.program("bench.slow_disk_broker", str(delay_ms), "broker")
        with Penstock(durability="auto", program=program) as server:
            for partitions in ACTIVE_PARTITIONS:
                rows += _measure(context, server, partitions, delay_ms)
    return rows


def _measure(context: Context, server: Penstock, partitions: int, delay_ms: int) -> list[Row]:
    name = f"fsync + {delay_ms} ms, {partitions:,} partitions"
    context.say(f"default durability: {name}")
    with topic(server, partitions) as made:
        together = run_driver(
            "writers",
            bootstrap=server.bootstrap,
            topic=made,
            partitions=partitions,
            writers=partitions,
            seconds=context.scaled(8, 3),
        )
        load = {"count": context.scaled(400_000, 100_000), "size": 1_024, "config": SPREAD}
        batched = measure_produce(server, made, load, partitions)
    return [
        Row(name, "synchronous, p50", "ms", Spread.of([together["p50_ms"]])),
        Row(name, "synchronous, p99", "ms", Spread.of([together["p99_ms"]])),
        Row(name, "synchronous, all writers", "messages/s", Spread.of([together["messages_per_s"]])),
        Row(name, "batched", "MB/s", Spread.of([batched["mb_per_s"]])),
    ]
