"""confluent-kafka producers (version 1 of the protocol), each a thread that commits one transaction after the
other.

A commit is timed after all messages of the transaction are acknowledged, so that it does not include their
sending.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, Producer

from bench.driver import Figures, drive
from bench.measure import percentile
from bench.payload import random_values

CHUNK = 500
QUEUED_MESSAGES = 10_000
"""A small client queue, so that a transaction that ends by time does not continue for long in the client."""
STALL_S = 60
WARM_UP = 5
"""Transactions that each producer commits before the measurement starts."""


@dataclass(frozen=True, slots=True)
class Load:
    topic: str
    chunk: list[list[dict[str, object]]]
    """Messages sent at once per partition: the client ignores the partition of a message in a batch."""
    open_s: float
    """Seconds that a transaction stays open, with one chunk after the other; 0 means one chunk."""


def transactions(
    bootstrap: str,
    topic: str,
    partitions: int,
    producers: int,
    seconds: float,
    size: int,
    messages: int = 0,
    open_s: float = 0.0,
) -> Figures:
    """Transactions of this many messages, or open for this long: number of committed messages, and commit
    latencies.
    """
    load = Load(topic, _chunk(messages or CHUNK, size, partitions), open_s)
    ready = threading.Barrier(producers)

    def run(number: int) -> tuple[float, float, int, list[float]]:
        producer = _started(bootstrap, f"{topic}-{number}")
        for _ in range(WARM_UP):
            _transact(producer, load)
        ready.wait(STALL_S)
        began, sent, times = time.perf_counter(), 0, []
        while time.perf_counter() < began + seconds:
            count, took_ms = _transact(producer, load)
            sent += count
            times.append(took_ms)
        return began, time.perf_counter(), sent, times

    with ThreadPoolExecutor(producers) as pool:
        done = list(pool.map(run, range(producers)))
    times = [took_ms for *_, each in done for took_ms in each]
    sent = sum(count for _, _, count, _ in done)
    return {
        "seconds": max(ended for _, ended, *_ in done) - min(began for began, *_ in done),
        "messages": sent,
        "bytes": sent * size,
        "transactions": len(times),
        "p50_ms": percentile(times, 0.5),
        "p99_ms": percentile(times, 0.99),
    }


def _transact(producer: Producer, load: Load) -> tuple[int, float]:
    """Number of messages of the transaction, and seconds of its commit."""
    producer.begin_transaction()
    sent = _send_for(producer, load) if load.open_s else _send(producer, load)
    if producer.flush(STALL_S):
        raise RuntimeError(f"not acknowledged within {STALL_S} s")
    began = time.perf_counter()
    producer.commit_transaction(STALL_S)
    return sent, (time.perf_counter() - began) * 1_000


def _send_for(producer: Producer, load: Load) -> int:
    sent = 0
    until = time.perf_counter() + load.open_s
    while time.perf_counter() < until:
        if len(producer) > QUEUED_MESSAGES:
            producer.poll(0.001)
        else:
            sent += _send(producer, load)
    return sent


def _send(producer: Producer, load: Load) -> int:
    wanted = taken = 0
    for partition, messages in enumerate(load.chunk):
        wanted += len(messages)
        taken += producer.produce_batch(load.topic, messages, partition=partition, on_delivery=_refuse_errors)
    if taken < wanted:
        raise RuntimeError(f"the client took {taken} of {wanted} messages")
    return taken


def _chunk(messages: int, size: int, partitions: int) -> list[list[dict[str, object]]]:
    """Send to all partitions, so that every transaction contains all of them."""
    values = random_values(size)
    return [
        [{"value": values[number % len(values)]} for number in range(partition, messages, partitions)]
        for partition in range(partitions)
    ]


def _refuse_errors(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        raise RuntimeError(f"delivery failed: {error}")


def _started(bootstrap: str, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 5,
            "queue.buffering.max.messages": QUEUED_MESSAGES + 2 * CHUNK,
            "delivery.report.only.error": True,
            "socket.nagle.disable": True,
        }
    )
    producer.init_transactions(STALL_S)
    return producer


if __name__ == "__main__":
    drive(transactions)
