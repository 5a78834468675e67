"""The part that the synchronous and the async producer share: queue messages, receive delivery reports, keep failures.

A failure is kept until the caller has seen it, through the handle of its message or as `NotDelivered` from the next
call. Only `flush` waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from threading import Lock
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from penstock.client.delay import DelayTopics, delay_header, refuse_second_delay
from penstock.client.errors import (
    ClientError,
    InvalidSetting,
    NotDelivered,
    Undelivered,
    from_kafka,
    translated,
)
from penstock.client.internal_connection import InternalConnection
from penstock.client.pending import PendingSend, SentHeaders, Stored
from penstock.client.producer_options import ProducerOptions, producer_config
from penstock.client.serializers import serialize, serializer
from penstock.client.topic_watch import TopicWatch
from penstock.client.transactions import Transactions, fatal

Headers = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]
Report = Callable[[PendingSend, KafkaError | None, Message], None]

ANY_PARTITION = -1
BY_CLOCK = 0
FAILURES_KEPT = 1000
"""Number of failures kept with their messages; further failures are only counted."""


class MessageSender:
    def __init__(self, bootstrap: str | None, options: ProducerOptions, report: Report | None = None) -> None:
        self._key_serializer = serializer(options.get("key_serializer"))
        self._value_serializer = serializer(options.get("value_serializer"))
        self._report = report or self.settle
        self._failures = Lock()
        self._failed: dict[PendingSend, Undelivered] = {}
        self._failed_besides = 0
        config = producer_config(bootstrap, options)
        self._offsets_known = str(config["acks"]) != "0"
        with translated("invalid combination of settings"):
            self._producer = Producer(config)
        self._delays = DelayTopics(config)
        self._watch = TopicWatch(InternalConnection(config=config))
        self.transactions: Transactions | None = None
        if "transactional.id" in config:
            self.transactions = Transactions(self._producer, config["transaction.timeout.ms"] / 1000)

    def offer(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Headers | None,
        timestamp: datetime | int | None,
    ) -> PendingSend | None:
        """Queue a message. Returns None if the queue is full."""
        self.raise_failures()
        if self.transactions is not None and not self.transactions.is_open:
            raise ClientError(
                "a producer with delivery='exactly-once' sends messages inside `with producer.transaction():`"
            )
        pending = PendingSend(self._seen, _header_list(headers))
        encoded = serialize(self._key_serializer, key, "key")
        if partition is None:
            partition = self._watch.partition_for(topic, encoded)
        try:
            self._producer.produce(
                topic,
                value=serialize(self._value_serializer, value, "value"),
                key=encoded,
                partition=ANY_PARTITION if partition is None else partition,
                timestamp=_milliseconds(timestamp),
                headers=pending.headers,
                on_delivery=partial(self._report, pending),
            )
        except BufferError:
            return None
        except KafkaException as error:
            raise from_kafka(error, f"a message to {topic} was refused") from None
        return pending

    def with_delay(
        self, topic: str, headers: Headers | None, delay_s: float | None, deliver_at: datetime | int | None
    ) -> Headers | None:
        """Return the headers with a header for the delay. The first delay of a topic waits for a broker."""
        header = delay_header(delay_s, deliver_at)
        if header is None:
            return headers
        own = _header_list(headers)
        refuse_second_delay(name for name, _ in own)
        self._delays.check(topic, header)
        return [*own, header]

    def serve(self, timeout_s: float) -> None:
        """Process delivery reports; wait up to `timeout_s` for the first one."""
        with self._fatal_told():
            self._producer.poll(timeout_s)

    def flush(self, timeout_s: float) -> int:
        """Wait until all messages are delivered or have failed; return the number of messages still queued."""
        with self._fatal_told():
            return int(self._producer.flush(timeout_s))
        return 0  # the abort of a transaction drops its queued messages

    def close(self) -> None:
        """Drop the queued messages; each of them gets a delivery report with an error."""
        self._watch.close()
        self._producer.purge()
        with suppress(KafkaException):
            self._producer.flush(1.0)

    def settle(self, pending: PendingSend, error: KafkaError | None, message: Message) -> None:
        topic = message.topic()
        if error is None:
            offset = message.offset() if self._offsets_known else None
            pending.settle(Stored(topic, message.partition(), offset))
            return
        failure = from_kafka(error, f"a message to {topic} was not stored")
        with self._failures:
            if len(self._failed) < FAILURES_KEPT:
                self._failed[pending] = _undelivered(message, pending.headers, failure)
            else:
                self._failed_besides += 1
        pending.settle(failure)

    def raise_failures(self) -> None:
        """Raise NotDelivered for failures that the caller has not seen, and mark them as seen."""
        if not self._failed:
            return
        with self._failures:
            failed = tuple(self._failed.values())
            count = len(failed) + self._failed_besides
            self._failed.clear()
            self._failed_besides = 0
        if failed:
            raise NotDelivered(failed, count)

    def begin(self) -> Transactions:
        """Open a transaction."""
        if self.transactions is None:
            raise InvalidSetting("transactions need a producer with delivery='exactly-once'")
        self.raise_failures()
        self.transactions.begin()
        return self.transactions

    def forget_failures(self) -> None:
        """Drop the failures of an aborted transaction: the error of the abort covers them all."""
        with self._failures:
            self._failed.clear()
            self._failed_besides = 0

    @contextmanager
    def _fatal_told(self) -> Iterator[None]:
        """Raise a fatal error of the producer only once; librdkafka raises it again in every later call."""
        try:
            yield
        except KafkaException as error:
            if self.transactions is None or not self.transactions.is_over:
                raise fatal(error, "the producer failed and cannot be used any more") from None

    def _seen(self, pending: PendingSend) -> None:
        with self._failures:
            self._failed.pop(pending, None)


def _undelivered(message: Message, headers: SentHeaders, error: ClientError) -> Undelivered:
    partition = message.partition()
    return Undelivered(
        message.topic(),
        partition if partition is not None and partition >= 0 else None,
        message.key(),
        message.value(),
        tuple(headers),
        error,
    )


def _milliseconds(timestamp: datetime | int | None) -> int:
    if timestamp is None:
        return BY_CLOCK
    return round(timestamp.timestamp() * 1000) if isinstance(timestamp, datetime) else timestamp


def _header_list(headers: Headers | None) -> SentHeaders:
    if not headers:
        return []
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]
