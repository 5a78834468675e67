"""`python -m bench.acks_one`: cost of `acks=1` on a partition with one replica, at both durabilities.

A synchronous producer sends one record of 1 KB and waits for its acknowledgement; a pipelined one sends many
at a time. Figures are medians of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

from penstock.testing.process import BrokerProcess

VALUE = b"x" * 1_024
SYNCHRONOUS = 500
PIPELINED = 50_000


def synchronous_ms(bootstrap: str) -> float:
    """Median time of one acknowledged record."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "1", "linger.ms": 0})
    times = []
    for _ in range(SYNCHRONOUS):
        started = time.perf_counter()
        producer.produce("one", VALUE, partition=0)
        producer.flush()
        times.append(time.perf_counter() - started)
    return statistics.median(times[10:]) * 1_000


def pipelined_per_second(bootstrap: str) -> float:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "1",
            "linger.ms": 5,
            "queue.buffering.max.messages": PIPELINED,
        }
    )
    started = time.perf_counter()
    for _ in range(PIPELINED):
        producer.produce("one", VALUE, partition=0)
    producer.flush()
    return PIPELINED / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    for durability in ("auto", "os"):
        with tempfile.TemporaryDirectory() as directory:
            broker = BrokerProcess(Path(directory), (f"durability={durability}",))
            broker.start()
            try:
                synchronous = [synchronous_ms(broker.bootstrap) for _ in range(rounds)]
                pipelined = [pipelined_per_second(broker.bootstrap) for _ in range(rounds)]
            finally:
                broker.stop()
        print(
            f"durability={durability}: synchronous p50 {statistics.median(synchronous):.2f} ms, "
            f"pipelined {statistics.median(pipelined):,.0f} records/s"
        )


if __name__ == "__main__":
    main()
