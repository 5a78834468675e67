"""Sender of records with a Kafka producer, which counts acknowledged and failed records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from penstock.cli.disk_space import HINT as DISK_HINT
from penstock.cli.failures import Failure
from penstock.cli.record import OutgoingRecord

FULL_QUEUE_POLL_SECONDS = 0.5
NOTICE_SECONDS = 3.0
"""Time in seconds after which the user sees why records are not acknowledged, if the reason is known."""
_WITHOUT_A_REASON = (KafkaError._MSG_TIMED_OUT, KafkaError.KAFKA_STORAGE_ERROR)
ANY_PARTITION = -1
BY_CLOCK = 0


@dataclass(slots=True)
class Sent:
    """Counts and next offsets of the acknowledged records."""

    records: int = 0
    bytes: int = 0
    next_offsets: dict[int, int] = field(default_factory=dict)


class RecordSender:
    def __init__(self, topic: str, config: dict[str, Any], full_disk: Callable[[], str]) -> None:
        """`full_disk` returns a sentence about a broker with a full disk, or an empty string."""
        self.sent = Sent()
        self._full_disk = full_disk
        self._topic = topic
        self._failed = 0
        self._first_error: KafkaError | None = None
        try:
            self._producer = Producer(config)
        except KafkaException as error:
            raise Failure(
                f"the options contradict each other: {error.args[0].str()}",
                "Change --acks, --idempotent, --compression or --timeout.",
            ) from None

    def send(self, record: OutgoingRecord, partition: int | None) -> None:
        """Enqueue a record. If an earlier record has failed, raise the Failure of `finish`."""
        if self._first_error is not None:
            self.finish()
        chosen = record.partition if record.partition is not None else partition
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=record.value,
                    key=record.key,
                    partition=ANY_PARTITION if chosen is None else chosen,
                    timestamp=BY_CLOCK if record.timestamp_ms is None else record.timestamp_ms,
                    headers=list(record.headers),
                    on_delivery=self._on_delivery,
                )
            except BufferError:
                self._producer.poll(FULL_QUEUE_POLL_SECONDS)
            except KafkaException as error:
                problem: KafkaError = error.args[0]
                raise Failure(
                    f"a record for {self._topic} was refused: {problem.str()} ({problem.name()})",
                    _hint(problem, self._topic),
                ) from None
            else:
                self._producer.poll(0)
                return

    def finish(self) -> None:
        """Wait for all acknowledgements. Raises Failure if records were not stored."""
        if self._producer.flush(NOTICE_SECONDS) and (reason := self._full_disk()):
            typer.echo(f"waiting for acknowledgements: {reason}", err=True)
        self._producer.flush()
        error = self._first_error
        if error is not None:
            count = f"{self._failed} of {self._failed + self.sent.records}"
            reason = self._full_disk() if error.code() in _WITHOUT_A_REASON else ""
            raise Failure(
                f"{count} records were not stored in {self._topic}: "
                + (reason or f"{error.str()} ({error.name()})"),
                DISK_HINT if reason else _hint(error, self._topic),
            )

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed += 1
            self._first_error = self._first_error or error
            return
        self.sent.records += 1
        self.sent.bytes += len(message)
        partition, offset = message.partition(), message.offset()
        if partition is not None and offset is not None and offset >= 0:
            self.sent.next_offsets[partition] = max(offset + 1, self.sent.next_offsets.get(partition, 0))


def _hint(error: KafkaError, topic: str) -> str:
    if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return f"Create the topic with `penstock topic create {topic}`."
    if error.code() == KafkaError._UNKNOWN_PARTITION:
        return f"`penstock topic describe {topic}` shows its partitions."
    if error.code() == KafkaError.INVALID_RECORD:
        return (
            "A record of a topic with delivery.delay has at most one of a delay, a delivery time and a cancellation, "
            "with a valid value; a record of a compacted topic has a key."
        )
    if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._BAD_MSG):
        return "max.message.bytes of the topic is the limit; `penstock topic alter --set` changes it."
    return "Records that were acknowledged are stored; send the others again."
