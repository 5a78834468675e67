"""Reads of one ZooKeeper node with many reads in flight, as a broker reads the nodes of a change."""

from __future__ import annotations

import time
from collections import deque

from kazoo.client import KazooClient

from bench.driver import Figures, drive

IN_FLIGHT = 500
PATIENCE_S = 30


def zookeeper_reads(hosts: str, path: str, count: int) -> Figures:
    client = KazooClient(hosts)
    client.start(PATIENCE_S)
    waiting: deque[object] = deque()
    began = time.perf_counter()
    for _ in range(count):
        waiting.append(client.get_async(path))
        if len(waiting) >= IN_FLIGHT:
            waiting.popleft().get(timeout=PATIENCE_S)  # type: ignore[attr-defined]
    for answer in waiting:
        answer.get(timeout=PATIENCE_S)  # type: ignore[attr-defined]
    seconds = time.perf_counter() - began
    client.stop()
    client.close()
    return {"seconds": seconds, "reads": count}


if __name__ == "__main__":
    drive(zookeeper_reads)
