"""Dead letters after `kill -9`: each record that was rejected, or has exhausted its deliveries, has one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

Place = tuple[int, int]
"""Partition and offset of a record."""
_SECONDS = 30.0


def read_dead_letters(bootstrap: str, topic: str) -> dict[Place, list[str]]:
    """Read a dead-letter topic from start to end; returns the reasons of the dead letters of each record."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge", "enable.auto.commit": False})
    found: dict[Place, list[str]] = {}
    try:
        for partition in consumer.list_topics(topic, _SECONDS).topics[topic].partitions:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), _SECONDS)
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
            position = 0
            while position < end:
                message = consumer.poll(_SECONDS)
                assert message is not None
                assert message.error() is None, message.error()
                position = message.offset() + 1
                headers = {name: (value or b"").decode() for name, value in message.headers() or ()}
                place = int(headers["__dlq.errors.partition"]), int(headers["__dlq.errors.offset"])
                found.setdefault(place, []).append(headers["penstock-dead-reason"])
        return found
    finally:
        consumer.close()


def judge_dead_letters(
    letters: Mapping[Place, Sequence[str]], rejected: AbstractSet[Place], certain: AbstractSet[Place]
) -> list[str]:
    """Violations. A consumer tried to reject the records of `rejected`; those of `certain` must have a dead letter."""
    violations = [
        f"{place} has dead letters {reasons}" for place, reasons in letters.items() if len(reasons) > 1
    ]
    violations += [
        f"{place} has a dead letter as rejected, and no consumer rejected it"
        for place, reasons in letters.items()
        if "rejected" in reasons and place not in rejected
    ]
    violations += [f"{place} was rejected and has no dead letter" for place in sorted(certain - set(letters))]
    if not letters:
        violations.append("there is no dead letter: the block has tested none")
    return violations
