"""Writers and readers on a cluster during faults, and the checks of all records at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from readers import Reader, forgotten
from replicas import differences
from writers import Writer, read_all

from support.cluster_processes import PATIENCE_S, ClusterProcesses
from support.eventually import eventually

GROUP = "readers"
COPIES = 3
WRITERS = 4
POLL_S = 0.02
WRITE_EVERY_S = 0.003
"""Interval of the writers in seconds: three brokers and all clients share a small machine with other tests."""


@dataclass(frozen=True, slots=True)
class Verdict:
    acknowledged: int
    stored: int
    violations: tuple[str, ...]


class Load:
    """Idempotent writers with acks=all and a group of two readers, on a topic with three replicas."""

    def __init__(
        self,
        cluster: ClusterProcesses,
        topic: str,
        partitions: int = 3,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        create(cluster, NewTopic(topic, partitions, COPIES, config=dict(config or {})))
        self.writers = [
            Writer(number, cluster.bootstrap, topic, partitions, WRITE_EVERY_S) for number in range(WRITERS)
        ]
        self._readers = [Reader(cluster.bootstrap, GROUP, topic) for _ in range(2)]

    @property
    def _workers(self) -> list[Writer | Reader]:
        return [*self.writers, *self._readers]

    @property
    def acknowledged(self) -> int:
        return sum(len(writer.history.acknowledged) for writer in self.writers)

    def start(self) -> None:
        for each in self._workers:
            each.start()

    def wait_for_more(self, count: int = 100, within_s: float = PATIENCE_S) -> float:
        """Wait until each writer has this many more acknowledgements, and return the seconds that it took."""
        started = time.monotonic()
        goals = [len(writer.history.acknowledged) + count for writer in self.writers]

        def have_more() -> bool:
            return all(
                len(w.history.acknowledged) >= goal for w, goal in zip(self.writers, goals, strict=True)
            )

        def details() -> str:
            refused = [text for writer in self.writers for text in writer.history.refused]
            return f"refused: {refused[:3]}\n{self._cluster.log_tails()}"

        eventually(have_more, "writes are acknowledged", within_s=within_s, poll_s=POLL_S, details=details)
        return time.monotonic() - started

    def keep_writing(self, seconds: float) -> None:
        """Expect acknowledgements for every writer during this time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.wait_for_more(10)

    def is_stuck_for(self, seconds: float) -> bool:
        """Whether no message is acknowledged for this long."""
        before, deadline = self.acknowledged, time.monotonic() + seconds
        while time.monotonic() < deadline and self.acknowledged == before:
            time.sleep(POLL_S)
        return self.acknowledged == before

    def abandon(self) -> None:
        """End the threads without waiting for brokers that may be down."""
        for each in self._workers:
            each.abandon()

    def expect_all_kept(self) -> None:
        violations = self.judge().violations
        assert not violations, "\n".join(violations)

    def judge(self) -> Verdict:
        """Stop everything and check it; the files of stopped brokers are compared too."""
        for writer in self.writers:
            writer.stop()
        self._cluster.wait_until_healed()
        bootstrap = self._cluster.bootstrap
        stored = list(read_all(bootstrap, self._topic, self._partitions))
        self._cluster.until(lambda: self.seen() >= len(stored), "the group has read everything")
        for reader in self._readers:
            reader.stop()
        violations = forgotten(bootstrap, GROUP, self._topic, self._readers)
        for number, writer in enumerate(self.writers):
            mine = [message for message in stored if message.sent.producer == number]
            violations += [*writer.history.refused, *writer.history.violations(mine)]
        for reader in self._readers:
            violations += reader.violations(stored)
        ends = high_watermarks(bootstrap, self._topic, self._partitions)
        partitions = self._cluster.metadata().topics[self._topic].partitions
        replicas = [partitions[number].replicas for number in range(self._partitions)]
        self._cluster.stop()
        data_dirs = {number: broker.data_dir for number, broker in self._cluster.brokers.items()}
        violations += differences(data_dirs, self._topic, replicas, ends)
        if not self.acknowledged:
            violations.append("nothing was acknowledged: nothing has been tested")
        return Verdict(self.acknowledged, len(stored), tuple(violations))

    def seen(self) -> int:
        """Number of messages that the group has read."""
        return len({place for reader in self._readers for place in list(reader.seen)})


@contextmanager
def under_load(
    cluster: ClusterProcesses, topic: str, partitions: int = 3, config: Mapping[str, str] | None = None
) -> Iterator[Load]:
    """Running load; the test calls the checks. Ends when the test ends."""
    load = Load(cluster, topic, partitions, config)
    load.start()
    try:
        load.wait_for_more()
        yield load
    except BaseException:
        load.abandon()
        raise


def create(cluster: ClusterProcesses, topic: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def is_created() -> bool:
        try:
            admin.create_topics([topic], operation_timeout=10)[topic.topic].result(PATIENCE_S)
        except KafkaException as error:
            # A broker of a new cluster may lose its session on a busy machine; it registers again.
            if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
                raise
            return False
        return True

    cluster.until(is_created, "topic is created")
    cluster.until(
        lambda: all(topic.topic in cluster.metadata(number).topics for number in cluster.running),
        "topic is known",
    )


def high_watermarks(bootstrap: str, topic: str, partitions: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "log_level": 0})
    places = [TopicPartition(topic, partition) for partition in range(partitions)]
    ends = [consumer.get_watermark_offsets(place, PATIENCE_S)[1] for place in places]
    consumer.close()
    return ends
