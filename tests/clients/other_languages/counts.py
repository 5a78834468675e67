"""A client in another language while a topic gets fewer partitions: the lines of the table in docs/partitions.md.

Arguments are the command of the program (see counted_client.py), the bootstrap servers and the name of the topic. The
topic shrinks from 8 partitions to 4 under load, grows again, shrinks again, is sealed, and loses its sealed partitions.
No send may fail, and each message that was sent has to be stored once, in order, and read by all groups.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from counted_client import CountedClient

from support.counted_topic import CountedTopic
from support.eventually import eventually

PARTITIONS, FEWER, COPIES = 8, 4, 3
GOING = set(range(FEWER, PARTITIONS))
MODES = ("keyed", "unkeyed", "idempotent", "transactional")
ROUND, LOAD_ROUNDS, FIND_ROUNDS, NEW_ROUNDS = 40, 5, 50, 5
METADATA_AGE_MS = 200
"""Age of the metadata of producers. Readers have the default of their client, some minutes."""
LONG_MS, SHORT_MS = 600_000, 1_500
PATIENCE_S = 60.0
READER_KINDS = {
    "Counts": ("classic", "consumer", "assigned"),
    "franz": ("classic", "consumer", "assigned"),
    "sarama": ("classic", "assigned"),
    "counts.js": ("classic",),
}
ALL, FIRST = ",".join(map(str, range(PARTITIONS))), ",".join(map(str, range(FEWER)))


class Ground:
    """The topic, the client, and everything that was sent."""

    def __init__(self, command: Sequence[str], bootstrap: str, name: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
        configs = {"partition.drain.quiet.ms": str(LONG_MS), "retention.ms": "-1"}
        [made] = self._admin.create_topics([NewTopic(name, PARTITIONS, COPIES, config=configs)]).values()
        made.result(PATIENCE_S)
        self.topic = CountedTopic(bootstrap, name)
        self.client = CountedClient(command, bootstrap, name)
        self.kinds = READER_KINDS[command[-1]]
        self.sent: dict[str, list[int]] = {}
        """Partitions of the messages of each producer, in the order of sending."""
        self.expected: dict[str, int] = {}
        """Number of messages that each reader has to read at least: those sent before its last check."""

    def send(self, name: str, rounds: int = 1) -> set[int]:
        """Send some messages, and return their partitions."""
        found: set[int] = set()
        partitions = self.sent.setdefault(name, [])
        for _ in range(rounds):
            partitions += self.client.send(name, len(partitions), ROUND)
            found.update(partitions[-ROUND:])
        return found

    def send_all(self, prefix: str = "running") -> None:
        for mode in MODES:
            self.send(f"{prefix}-{mode}")

    def under_load(self, action: Callable[[], object]) -> None:
        """Send from the running producers while the action runs."""
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(action)
            while not done.done():
                self.send_all()
            done.result()

    def open(self, prefix: str) -> None:
        for mode in MODES:
            self.client.open(f"{prefix}-{mode}", mode, METADATA_AGE_MS)

    def close(self, prefix: str) -> None:
        for mode in MODES:
            self.client.close(f"{prefix}-{mode}")

    def values(self, partitions: set[int] | None = None) -> set[str]:
        """Values that were sent to these partitions, or to all."""
        return {
            f"{name}:{number}"
            for name, found in self.sent.items()
            for number, partition in enumerate(found)
            if partitions is None or partition in partitions
        }

    def until_read(self, prefix: str, wanted: set[str] | None = None) -> None:
        """Wait until readers with this prefix of each kind have read these values, or everything."""
        for kind in self.kinds:
            self._until_read(f"{prefix}-{kind}", self.values() if wanted is None else wanted)

    def _until_read(self, reader: str, wanted: set[str]) -> None:
        def missing() -> int:
            return len(wanted.difference(list(self.client.read[reader].values())))

        eventually(
            lambda: missing() == 0,
            f"{reader} has read {len(wanted)} messages",
            within_s=PATIENCE_S,
            details=missing,
        )
        assert self.client.broken == [], self.client.broken

    def until_committed(self) -> None:
        """Wait until all groups have committed what they read: kafkajs does not commit it when it is closed."""

        def has_committed() -> bool:
            reasons = [reason for _, waits_for in self.topic.waits_for().values() for reason in waits_for]
            return not any("is behind" in reason for reason in reasons)

        eventually(has_committed, "no group is behind", within_s=PATIENCE_S, details=self.topic.waits_for)

    def read(self, prefix: str, partitions: str = ALL) -> None:
        for kind in self.kinds:
            place = partitions if kind == "assigned" else f"{self.topic.name}-{prefix}-{kind}"
            self.client.start_reading(f"{prefix}-{kind}", kind, place)

    def end_reading(self, prefix: str) -> None:
        for kind in self.kinds:
            self.client.close(f"{prefix}-{kind}")

    def set_quiet_ms(self, quiet_ms: int) -> None:
        entry = ConfigEntry(
            "partition.drain.quiet.ms", str(quiet_ms), incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.TOPIC, self.topic.name, incremental_configs=[entry])
        [done] = self._admin.incremental_alter_configs([resource]).values()
        done.result(PATIENCE_S)

    def check_stored(self) -> None:
        """Each message is stored once, in the partition that its sender was told, and in the order of sending."""
        stored = read_everything(self.topic)
        wanted: dict[int, dict[str, list[int]]] = {partition: {} for partition in range(PARTITIONS)}
        for name, partitions in self.sent.items():
            for number, partition in enumerate(partitions):
                wanted[partition].setdefault(name, []).append(number)
        assert stored == wanted, "messages are lost, stored twice, or not in order"
        print(f"{len(self.values())} messages are stored, each once and in order")


def read_everything(topic: CountedTopic) -> dict[int, dict[str, list[int]]]:
    """Numbers of the messages of each producer, by partition, in the order of the log."""
    settings = {"bootstrap.servers": topic.bootstrap, "group.id": "check", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic.name, number, 0) for number in range(PARTITIONS)])
    found: dict[int, dict[str, list[int]]] = {number: {} for number in range(PARTITIONS)}
    at_end: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(at_end) < PARTITIONS:
        assert time.monotonic() < deadline, f"only {sorted(at_end)} are read to their ends"
        for message in consumer.consume(500, 0.5):
            if message.error() is None:
                name, _, number = message.value().decode().partition(":")
                found[message.partition()].setdefault(name, []).append(int(number))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
    consumer.close()
    return found


def try_active(ground: Ground) -> None:
    ground.open("running")
    ground.read("running")
    for _ in range(LOAD_ROUNDS):
        ground.send_all()
    ground.until_read("running")


def try_shrinking(ground: Ground) -> None:
    """Draining partitions: a running or reconnecting producer keeps them, a new one does not see them."""

    def shrink() -> None:
        ground.topic.set_count(FEWER)
        ground.topic.until_shown(FEWER)

    ground.under_load(shrink)
    find_partitions_that_go(ground, "running")
    ground.close("running")
    ground.open("running")
    find_partitions_that_go(ground, "running")
    use_first_partitions(ground, "new")
    print("draining: running and reconnecting producers keep all partitions, new ones have four")


def find_partitions_that_go(ground: Ground, prefix: str) -> None:
    for mode in MODES:
        name = f"{prefix}-{mode}"
        found = any(ground.send(name) & GOING for _ in range(FIND_ROUNDS))
        assert found, f"{name} does not use the draining partitions"


def use_first_partitions(ground: Ground, prefix: str) -> None:
    ground.open(prefix)
    for mode in MODES:
        found = ground.send(f"{prefix}-{mode}", NEW_ROUNDS)
        assert not found & GOING, f"{prefix}-{mode} writes to {sorted(found)}"
    ground.close(prefix)


def try_draining_readers(ground: Ground) -> None:
    """Running, new and restarted groups and assigned readers read draining partitions."""
    ground.until_read("running")
    ground.read("new")
    ground.send_all()
    ground.until_read("new")
    ground.end_reading("running")
    ground.send_all()
    ground.read("running")
    ground.until_read("running")
    ground.until_read("new")
    print("draining: running, new and restarted readers read everything")


def try_undoing(ground: Ground) -> None:
    """Partitions that are active again are used by all producers, and shrink once more."""

    def undo() -> None:
        ground.topic.set_count(PARTITIONS)
        ground.topic.until_shown(PARTITIONS)

    def shrink() -> None:
        ground.topic.set_count(FEWER)
        ground.topic.until_shown(FEWER)

    for _ in range(2):
        ground.under_load(undo)
        find_partitions_that_go(ground, "running")
        ground.under_load(shrink)
        find_partitions_that_go(ground, "running")
    ground.until_read("running")
    print("undone and repeated twice under load")


def try_sealed(ground: Ground) -> None:
    """Sealed partitions: producers that connect use the first ones, and readers read everything.

    A producer that was connected before may still know a sealed partition, and fails to write to it.
    """
    ground.close("running")
    ground.until_read("new")
    ground.until_committed()
    ground.end_reading("new")
    ground.set_quiet_ms(SHORT_MS)
    ground.topic.until(*["active"] * FEWER, *["sealed"] * (PARTITIONS - FEWER))
    use_first_partitions(ground, "running")
    use_first_partitions(ground, "late")
    ground.read("late")
    ground.until_read("late")
    ground.until_read("running")
    ground.end_reading("running")
    ground.read("running")
    use_first_partitions(ground, "later")
    ground.until_read("running")
    ground.end_reading("late")
    print("sealed: producers use four partitions, readers read everything")
    ground.check_stored()


def try_removed(ground: Ground) -> None:
    """Removed partitions: producers use the first ones, and readers read what they have."""
    ground.open("last")
    ground.send_all("last")
    ground.topic.set_count(0, "drop-sealed")
    ground.topic.until(*["active"] * FEWER)
    ground.send_all("last")
    ground.until_read("running")
    ground.end_reading("running")
    ground.read("running", FIRST)
    ground.read("newest", FIRST)
    use_first_partitions(ground, "newest")
    ground.send_all("last")
    left = ground.values(set(range(FEWER)))
    ground.until_read("running", left)
    ground.until_read("newest", left)
    print("removed: producers use four partitions, readers read what is left")


def main(command: Sequence[str], bootstrap: str, name: str) -> None:
    ground = Ground(command, bootstrap, name)
    try:
        try_active(ground)
        try_shrinking(ground)
        try_draining_readers(ground)
        try_undoing(ground)
        try_sealed(ground)
        try_removed(ground)
    finally:
        ground.client.stop()


if __name__ == "__main__":
    main(sys.argv[1:-2], *sys.argv[-2:])
