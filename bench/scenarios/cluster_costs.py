"""Costs of a larger cluster, measured on a small one; docs/performance.md derives the model.

The cost of an idle fetch (a follower fetch without new records), for leader and follower together, is the
difference between a cluster whose followers fetch every 500 ms and one whose followers fetch every 5 ms.
"""

from __future__ import annotations

import time

from bench.clusters import BROKERS, PenstockCluster
from bench.comparison import Bar, Row
from bench.context import Context
from bench.driver import run_driver
from bench.measure import Spread, cpu_seconds
from bench.topics import create_topic

NAME = "3 brokers: costs"
SLOW_S, QUICK_S = 0.5, 0.005
FOLLOWED = BROKERS * (BROKERS - 1)
"""Pairs of a follower and a leader."""
SETTLE_S = 3.0


def small_things(context: Context) -> list[Row]:
    seconds = context.scaled(30, 10)
    with PenstockCluster() as cluster:
        create_topic(cluster, "idle", BROKERS)
        idle = _cores(context, cluster, seconds, SLOW_S)
        memory_mb = cluster.rss_mb() / BROKERS
        hosts, zookeeper = cluster.zookeeper
        before = cpu_seconds(zookeeper)
        count = context.scaled(100_000, 20_000)
        reading = run_driver("zookeeper_reads", hosts=hosts, path="/controller", count=count)
        read_us = (cpu_seconds(zookeeper) - before) / count * 1e6
    with PenstockCluster((f"replica.fetch.wait.max.ms={QUICK_S * 1000:.0f}",)) as cluster:
        create_topic(cluster, "idle", BROKERS)
        busy = _cores(context, cluster, seconds, QUICK_S)
    fetches_per_s = FOLLOWED / QUICK_S - FOLLOWED / SLOW_S
    return [
        Row(
            NAME,
            "idle broker",
            "% of a core",
            Spread.of([idle / BROKERS * 100]),
            bar=Bar("value", "at most", 2.0),
        ),
        Row(NAME, "idle broker, resident", "MB", Spread.of([memory_mb])),
        Row(NAME, "idle fetch, CPU of both brokers", "us", Spread.of([(busy - idle) / fetches_per_s * 1e6])),
        Row(NAME, "ZooKeeper, reads of one client", "/s", Spread.of([reading["reads"] / reading["seconds"]])),
        Row(NAME, "ZooKeeper, CPU of a read", "us", Spread.of([read_us])),
    ]


def _cores(context: Context, cluster: PenstockCluster, seconds: float, wait_s: float) -> float:
    """CPU time of all brokers together without writes."""
    context.say(f"{NAME}: idle, a fetch every {wait_s * 1000:.0f} ms")
    time.sleep(SETTLE_S)
    before = cluster.cpu_seconds()
    time.sleep(seconds)
    return (cluster.cpu_seconds() - before) / seconds
