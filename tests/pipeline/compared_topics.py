"""Topics for the comparison with Spark's Kafka connector: all codecs, headers, nulls, transactions, compaction."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from archive_helpers import START_MS, delete_records, make
from confluent_kafka import Consumer, Producer, TopicPartition
from declared_helpers import messages

from support.eventually import eventually

PARTITIONS = 3
"""Partitions of each topic; the last one stays empty."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
STEP_MS = 60_000
_CONTENTS = (None, b"", b"\xff\xfe\x00 not text", "Größe 大小".encode(), b"x" * 3_000)
_HEADERS = (
    None,
    [("one", b"1")],
    [("twice", b"a"), ("twice", b"b"), ("", b"without a name")],
    [("null", None), ("empty", b""), ("bytes", b"\x00\xff")],
    [("größe", "大".encode())],
)


@dataclass(frozen=True, slots=True)
class Topics:
    bootstrap: str

    def create(self) -> None:
        for codec in CODECS:
            make(self.bootstrap, f"codec-{codec}", PARTITIONS, compression_type="producer")
        for name in ("transactions", "deleted", "empty"):
            make(self.bootstrap, name, PARTITIONS)
        make(self.bootstrap, "append-time", PARTITIONS, message_timestamp_type="LogAppendTime")
        make(
            self.bootstrap,
            "compacted",
            PARTITIONS,
            cleanup_policy="compact",
            segment_bytes="1024",
            min_cleanable_dirty_ratio="0.01",
        )

    def fill(self, first: int, end: int) -> None:
        """Add records with these numbers to every topic."""
        for codec in CODECS:
            # Large batches and small ones, so that ranges of tasks start and end inside a batch.
            self._send(f"codec-{codec}", range(first, end), codec, linger_ms=first % 50)
        for name in ("append-time", "deleted", "compacted"):
            self._send(name, range(first, end), "lz4")
        self._transact(first, end)

    @contextmanager
    def open_transaction(self, number: int) -> Iterator[None]:
        """Transaction that is open in this context, whose record no committed read may show."""
        producer = self._transactional("open")
        producer.begin_transaction()
        _produce(producer, "transactions", number)
        assert producer.flush(60) == 0
        yield
        producer.abort_transaction(60)

    def delete_first_records(self, offset: int = 17, *names: str) -> None:
        for name in names or ("deleted",):
            for partition in range(PARTITIONS - 1):
                if name != "empty":
                    delete_records(self.bootstrap, name, partition, offset)

    def wait_for_compaction(self) -> None:
        """Return when the log of the compacted topic has gaps."""
        eventually(
            lambda: len(messages(self.bootstrap, "compacted")) < self._end("compacted"),
            "records are compacted",
            within_s=120,
        )

    def _send(self, topic: str, numbers: Iterable[int], codec: str, linger_ms: int = 20) -> None:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "compression.type": codec, "linger.ms": linger_ms}
        )
        for number in numbers:
            _produce(producer, topic, number)
            if number % 50 == 0:
                assert producer.flush(60) == 0
        assert producer.flush(60) == 0

    def _transact(self, first: int, end: int) -> None:
        """Committed and aborted transactions, also of two producers at once, and one that stays open."""
        producers = [self._transactional(f"writer-{number}") for number in range(2)]
        chance = random.Random(first)
        for start in range(first, end, 20):
            for producer in producers:
                producer.begin_transaction()
            for number in range(start, min(start + 20, end)):
                _produce(chance.choice(producers), "transactions", number)
            for producer in producers:
                finish: Callable[[float], None] = (
                    producer.commit_transaction if chance.random() < 0.7 else producer.abort_transaction
                )
                assert producer.flush(60) == 0
                finish(60)

    def _transactional(self, name: str) -> Producer:
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": name})
        producer.init_transactions(60)
        return producer

    def _end(self, topic: str) -> int:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "ends"})
        try:
            places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            return sum(consumer.get_watermark_offsets(each, 30)[1] for each in places)
        finally:
            consumer.close()


def _produce(producer: Producer, topic: str, number: int) -> None:
    key = None if number % 11 == 0 and topic != "compacted" else b"key %d" % (number % 30)
    value = _CONTENTS[number % len(_CONTENTS)] if number % 3 == 0 else b'{"id": %d}' % number
    producer.produce(
        topic,
        value,
        key,
        partition=number % (PARTITIONS - 1),
        timestamp=START_MS + number * STEP_MS,
        headers=_HEADERS[number // 5 % len(_HEADERS)],
    )
    producer.poll(0)
