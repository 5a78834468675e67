"""Reader of partitions from given offsets, with a Kafka consumer without a group."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.cli.cluster_client import ClusterClient, client_config
from penstock.cli.failures import Failure
from penstock.cli.record import IncomingRecord
from penstock.client.errors import damage_of
from penstock.internal_client.records import LATEST
from penstock.records.expiry import is_expired

POLL_SECONDS = 0.5
MESSAGES_PER_POLL = 1000


def read_topic(
    cluster: ClusterClient, topic: str, begin: Mapping[int, int], *, follow: bool, maximum: int | None
) -> Iterator[IncomingRecord]:
    """Yield records from the given offsets to the current log ends or, with `follow`, without end."""
    ends = cluster.offsets(topic, begin, LATEST)
    unfinished = {number for number, offset in begin.items() if follow or offset < ends[number]}
    if not unfinished:
        return
    consumer = Consumer(_consumer_config(cluster))
    try:
        consumer.assign([TopicPartition(topic, number, begin[number]) for number in sorted(unfinished)])
        count = 0
        while unfinished:
            for message in next_messages(consumer):
                number = message.partition()
                if message.error() is None:
                    if (follow or message.offset() < ends[number]) and not has_expired(message):
                        yield to_record(message)
                        count += 1
                    if count == maximum:
                        return
                    position = message.offset() + 1
                else:
                    check_event(message)
                    position = message.offset()
                if not follow and position >= ends[number]:
                    unfinished.discard(number)
    except KafkaException as error:
        raise read_failure(topic, error) from None
    finally:
        consumer.close()


def next_messages(consumer: Consumer) -> list[Message]:
    """Return the messages that have arrived, after waiting for the first one.

    `consume` alone would wait until it has the maximum number of messages.
    """
    first = consumer.poll(POLL_SECONDS)
    return [] if first is None else [first, *consumer.consume(MESSAGES_PER_POLL, 0)]


def has_expired(message: Message) -> bool:
    """Return True if the lifetime of a record has passed, by the clock of this machine."""
    headers = message.headers()
    return bool(headers) and is_expired(
        message.timestamp()[1], tuple(headers or ()), time.time_ns() // 1_000_000
    )


def _consumer_config(cluster: ClusterClient) -> dict[str, object]:
    return client_config(cluster.bootstrap) | {
        "group.id": "penstock-cli",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "check.crcs": True,
        "fetch.wait.max.ms": 100,
    }


def check_event(message: Message) -> None:
    """Raise an exception for damaged records, and for an error that the client does not recover from."""
    damage = damage_of(message)
    if damage is not None:
        raise Failure(
            str(damage),
            "The records before the damage were printed. Continue after it with --partition N --from OFFSET.",
        )
    error: KafkaError = message.error()
    if error.code() != KafkaError._PARTITION_EOF and not error.retriable():
        raise KafkaException(error)


def read_failure(subject: str, error: KafkaException) -> Failure:
    problem: KafkaError = error.args[0]
    return Failure(
        f"cannot read {subject}: {problem.str()} ({problem.name()})",
        "`penstock cluster status` shows whether brokers are missing.",
    )


def to_record(message: Message) -> IncomingRecord:
    return IncomingRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple((name, value) for name, value in message.headers() or ()),
    )
