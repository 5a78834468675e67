"""Exactly-once processing: a consumer and a producer that share transactions.

Input offsets and output are committed together or not at all. A batch whose transaction was aborted (by a
rebalance or a failed broker) is read again: `transform` may see a message twice, but its output is written
once.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from penstock.client.consumer import Consumer
from penstock.client.consumer_options import ConsumerOptions
from penstock.client.errors import (
    ClientError,
    InvalidSetting,
    NotDelivered,
    ProducerFenced,
    TimedOut,
    TransactionAborted,
)
from penstock.client.message import Message
from penstock.client.producer import Producer
from penstock.client.producer_options import ProducerOptions
from penstock.client.sender import Headers
from penstock.client.serializers import Deserializer, Format, Serializer

MAX_MESSAGES = 500
"""Largest number of messages in one transaction."""
MAX_TRIES = 20
RETRY_S = 0.2

logger = logging.getLogger("penstock.client")


@dataclass(frozen=True, slots=True)
class Out:
    """An output message of `transform` with more than a value: key, topic, partition or headers."""

    value: Any
    key: Any = None
    topic: str | None = None
    """Target topic; `sink` if None."""
    partition: int | None = None
    headers: Headers | None = None


Transform = Callable[[Message], Any]


class ProcessOptions(TypedDict, total=False):
    bootstrap: str | None
    key_deserializer: Format | Deserializer
    value_deserializer: Format | Deserializer
    key_serializer: Format | Serializer
    value_serializer: Format | Serializer
    transactional_id: str
    """Transactional id; a random one by default, which is right for members of a group."""
    transaction_timeout_s: float
    idle_timeout_s: float
    """Time without messages after which processing ends; without it, processing never ends."""
    max_messages: int
    """Largest number of messages in one transaction."""
    consumer_config: Mapping[str, Any]
    producer_config: Mapping[str, Any]
    """Settings by librdkafka's names; they override all other options."""


def process(
    source: str | Sequence[str],
    transform: Transform,
    sink: str,
    *,
    group: str,
    **options: Unpack[ProcessOptions],
) -> int:
    """Call `transform` with each message of `source` and write the results to `sink`, exactly once.

    `transform` returns a value (the output has the key of the message), an `Out`, a list or iterator of these, or None
    for no output. Returns the number of processed messages when no message has arrived for `idle_timeout_s`.
    """
    if not group:
        raise InvalidSetting("processing needs a consumer group, which stores its progress; give group=...")
    topics = (source,) if isinstance(source, str) else source
    max_messages, idle_timeout_s = options.get("max_messages", MAX_MESSAGES), options.get("idle_timeout_s")
    done = 0
    with Consumer(*topics, **_consumer_options(group, options)) as consumer:
        worker = _Worker(consumer, transform, sink, options)
        try:
            while batch := consumer.batch(max_messages, idle_timeout_s):
                done += worker.process(batch)
        finally:
            worker.close()
    return done


class _Worker:
    """Processes batches of a consumer in transactions; replaces the producer when the outcome of a transaction is
    unknown.
    """

    def __init__(self, consumer: Consumer, transform: Transform, sink: str, options: ProcessOptions) -> None:
        self._consumer = consumer
        self._transform = transform
        self._sink = sink
        self._options = options
        # A replacement producer uses the same id: its registration ends the open transaction of its predecessor.
        self._transactional_id = options.get("transactional_id") or f"penstock-{uuid.uuid4()}"
        self._producer = _producer(self._transactional_id, options)
        self._failures = 0

    def process(self, batch: Sequence[Message]) -> int:
        """Process a batch in a transaction and return its size; 0 if the batch will be read again."""
        try:
            self._transact(batch)
        except (TransactionAborted, NotDelivered, ProducerFenced, TimedOut) as error:
            self._failures += 1
            is_replaced = isinstance(error, ProducerFenced) and "transactional_id" in self._options
            if is_replaced or self._failures >= MAX_TRIES:
                raise
            logger.warning("transaction failed; %d messages are read again: %s", len(batch), error)
            time.sleep(RETRY_S)
            self._go_back(error)
            return 0
        self._failures = 0
        return len(batch)

    def close(self) -> None:
        _give_up(self._producer)

    def _go_back(self, error: ClientError) -> None:
        """Return to the last committed offsets after a failed transaction."""
        if isinstance(error, ProducerFenced | TimedOut):
            self.close()
            self._producer = _producer(self._transactional_id, self._options)
            self._consumer.reader.resume_committed()  # the open transaction may have been committed
        else:
            self._consumer.reader.rewind()

    def _transact(self, batch: Sequence[Message]) -> None:
        send = self._producer.send
        with self._producer.transaction() as transaction:
            for message in batch:
                for out in _outs(self._transform(message), message):
                    topic = self._sink if out.topic is None else out.topic
                    send(topic, out.value, key=out.key, partition=out.partition, headers=out.headers)
            transaction.commit_progress(self._consumer)


def _give_up(producer: Producer) -> None:
    """Close a producer whose transaction has ended, or will be ended by the producer that replaces it."""
    with suppress(ClientError):
        producer.close()


def _consumer_options(group: str, options: ProcessOptions) -> ConsumerOptions:
    chosen = ConsumerOptions(
        group=group,
        delivery="exactly-once",
        bootstrap=options.get("bootstrap"),
        config=options.get("consumer_config", {}),
    )
    if "key_deserializer" in options:
        chosen["key_deserializer"] = options["key_deserializer"]
    if "value_deserializer" in options:
        chosen["value_deserializer"] = options["value_deserializer"]
    return chosen


def _producer(transactional_id: str, options: ProcessOptions) -> Producer:
    chosen = ProducerOptions(
        delivery="exactly-once",
        transactional_id=transactional_id,
        config=options.get("producer_config", {}),
    )
    if "key_serializer" in options:
        chosen["key_serializer"] = options["key_serializer"]
    if "value_serializer" in options:
        chosen["value_serializer"] = options["value_serializer"]
    if "transaction_timeout_s" in options:
        chosen["transaction_timeout_s"] = options["transaction_timeout_s"]
    return Producer(options.get("bootstrap"), **chosen)


def _outs(result: Any, message: Message) -> Iterator[Out]:
    if result is None:
        return
    results: Iterable[Any] = result if isinstance(result, list | Iterator) else (result,)
    for each in results:
        yield each if isinstance(each, Out) else Out(each, key=message.key)
