"""Membership in the consumer group of all supervisors, in which the partitions of `__pipelines` are divided.

A member tries to own the pipelines of its partitions. The assignment does not exclude two owners at the same time;
`ownership` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, TopicPartition

from penstock.internal_client.partitioner import partition_for
from penstock.internal_client.pipelines import DEFINITIONS, GROUP, StoredPipeline
from penstock.pipeline.read_settings import librdkafka_settings

SESSION_MS = 10_000
_MAX_AT_ONCE = 500


class SupervisorMembership:
    """Definitions of pipelines in the partitions that are assigned to this supervisor. When partitions are revoked,
    `on_revoked` is called with the names of their pipelines, before another member gets them.
    """

    def __init__(self, bootstrap: str, partitions: int, on_revoked: Callable[[set[str]], None]) -> None:
        self._partitions = partitions
        self._on_revoked = on_revoked
        self._assigned: set[int] = set()
        self._read: set[int] = set()
        self._definitions: dict[str, StoredPipeline] = {}
        self._consumer = Consumer(
            {
                **librdkafka_settings(bootstrap),
                "group.id": GROUP,
                "client.id": "penstock-pipelines",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "session.timeout.ms": SESSION_MS,
                "partition.assignment.strategy": "cooperative-sticky",
                "log_level": 0,
            }
        )
        self._consumer.subscribe(
            [DEFINITIONS.name], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke
        )

    def poll(self, seconds: float) -> None:
        """Process changes of definitions, and keep the membership in the group."""
        for message in self._consumer.consume(_MAX_AT_ONCE, seconds):
            error, partition = message.error(), message.partition()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF and partition is not None:
                    self._read.add(partition)
                continue
            name, value = (message.key() or b"").decode(errors="replace"), message.value()
            if value is None:
                self._definitions.pop(name, None)
            else:
                self._definitions[name] = StoredPipeline.decode(json.loads(value))

    def pipelines(self) -> dict[str, StoredPipeline]:
        """Definitions in the assigned partitions that have been read to their end."""
        ready = self._assigned & self._read
        return {name: each for name, each in self._definitions.items() if self._partition(name) in ready}

    @property
    def is_settled(self) -> bool:
        """True if partitions are assigned to this supervisor and all of them have been read to their end."""
        return bool(self._assigned) and self._assigned <= self._read

    def close(self) -> None:
        self._consumer.close()

    def _assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._assigned |= {each.partition for each in partitions}

    def _revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        gone = {each.partition for each in partitions}
        self._assigned -= gone
        self._read -= gone
        names = {name for name in self._definitions if self._partition(name) in gone}
        self._definitions = {name: each for name, each in self._definitions.items() if name not in names}
        self._on_revoked(names)

    def _partition(self, name: str) -> int:
        return partition_for(name.encode(), self._partitions)
