"""Fewer partitions under load, with `kill -9` of leaders and of the controller in each phase.

`make count-cycles CYCLES=40` runs this file on a cluster of three. In each cycle a producer writes to all partitions,
two of which drain; then the change is taken back, or the partitions are sealed, and taken back or removed and created
again. A consumer group reads all the time: at the end of a block it has read each acknowledged message, once at an
offset and in order, and no send has failed.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from history import Sent, Stored
from kill_block import BlockResult, run_blocks
from writers import Writer

from support.cluster_processes import ClusterProcesses
from support.counted_topic import CountedTopic
from support.eventually import eventually

TOPIC, GROUP = "counted", "readers"
PARTITIONS, FEWER, BROKERS = 4, 2, 3
CYCLES_A_BLOCK = 10
QUIET_MS = 1_500
PATIENCE_S = 180.0
LONGEST_S = 1.5
"""Longest time between a request of the administrator and a kill."""


class Reader:
    """A consumer of a group in a thread, with the messages that it has read."""

    def __init__(self, bootstrap: str) -> None:
        self.stored: dict[tuple[int, int], Sent] = {}
        """Messages by partition and offset."""
        self.violations: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(bootstrap,), daemon=True)
        self._thread.start()

    def _run(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": GROUP, "client.id": GROUP, "log_level": 0}
        refresh = {"topic.metadata.refresh.interval.ms": 500, "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, **refresh})
        consumer.subscribe([TOPIC])
        while not self._stopping.is_set():
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    self._note((message.partition(), message.offset()), Sent.decode(message.value()))
        consumer.close()

    def _note(self, place: tuple[int, int], sent: Sent) -> None:
        if self.stored.setdefault(place, sent) != sent:
            self.violations.append(f"{place} has {sent} and {self.stored[place]}")

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


class Killer:
    """Kills of leaders of partitions that go, and of the controller."""

    def __init__(self, cluster: ClusterProcesses, topic: CountedTopic, source: random.Random) -> None:
        self._cluster, self._topic, self._source = cluster, topic, source

    def kill(self) -> None:
        time.sleep(self._source.random() * LONGEST_S)
        choice = self._source.randrange(3)
        going = self._topic.leaders()[FEWER:]  # none, once they are removed
        victim = going[choice] if choice < len(going) else self._cluster.controller()
        self._cluster.kill_brokers([victim if victim > 0 else self._source.choice(self._cluster.running)])

    def heal(self) -> None:
        self._cluster.start()
        self._cluster.wait_until_healed()


def _create(bootstrap: str) -> CountedTopic:
    configs = {
        "partition.drain.quiet.ms": str(QUIET_MS),
        "retention.ms": "-1",
        "min.insync.replicas": "2",
    }
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    [made] = admin.create_topics([NewTopic(TOPIC, PARTITIONS, BROKERS, config=configs)]).values()
    made.result(PATIENCE_S)
    return CountedTopic(bootstrap, TOPIC)


def run_block(directory: Path, seed: int, cycles: int, say: Callable[[str], None]) -> BlockResult:
    source = random.Random(seed)
    cluster = ClusterProcesses(directory, BROKERS)
    writers: list[Writer] = []
    try:
        cluster.start()
        topic = _create(cluster.bootstrap)
        killer = Killer(cluster, topic, source)
        reader = Reader(cluster.bootstrap)
        try:
            for cycle in range(cycles):
                say(f"seed {seed}: cycle {cycle + 1} of {cycles}")
                writers.append(Writer(cycle, cluster.bootstrap, TOPIC, PARTITIONS, 0.002))
                _cycle(topic, killer, writers, reader, source)
            _wait_for_reader(writers, reader)
        finally:
            reader.stop()
        return _judge(writers, reader, cycles)
    finally:
        cluster.close()


def _cycle(
    topic: CountedTopic, killer: Killer, writers: list[Writer], reader: Reader, source: random.Random
) -> None:
    """Drain, kill, and take the change back or go on; then the same with sealed partitions."""
    writer = writers[-1]
    writer.start()
    eventually(lambda: len(writer.history.acknowledged) > 100, "the producer writes", within_s=PATIENCE_S)
    topic.set_count(FEWER)
    killer.kill()
    if source.random() < 0.4:
        topic.set_count(PARTITIONS)
        killer.heal()
        topic.set_count(FEWER)
        killer.kill()
    killer.heal()
    writer.stop()
    killer.kill()
    topic.until("active", "active", "sealed", "sealed")
    killer.heal()
    if source.random() < 0.5:
        topic.set_count(PARTITIONS)
        killer.kill()
        killer.heal()
        return
    _wait_for_reader(writers, reader)
    topic.set_count(0, "drop-sealed")
    killer.kill()
    killer.heal()
    topic.until("active", "active")
    topic.grow(PARTITIONS)


def _wait_for_reader(writers: list[Writer], reader: Reader) -> None:
    wanted = {sent for writer in writers for sent in writer.history.acknowledged}

    def left() -> int:
        return len(wanted.difference(list(reader.stored.values())))

    eventually(lambda: left() == 0, "the group has read everything", within_s=PATIENCE_S, details=left)


def _judge(writers: list[Writer], reader: Reader, cycles: int) -> BlockResult:
    violations = list(reader.violations)
    found = [Stored(*place, sent) for place, sent in sorted(reader.stored.items())]
    for number, writer in enumerate(writers):
        mine = [message for message in found if message.sent.producer == number]
        violations += [*writer.history.refused, *writer.history.violations(mine)]
    acknowledged = sum(len(writer.history.acknowledged) for writer in writers)
    return BlockResult(cycles, acknowledged, len(found), tuple(violations[:20]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", type=Path, default=Path("build/count-cycles"))
    options = parser.parse_args()
    kept = "nothing lost, nothing twice at an offset, no send failed"
    return run_blocks(run_block, options.state, options.cycles, CYCLES_A_BLOCK, options.seed, "cycles", kept)


if __name__ == "__main__":
    sys.exit(main())
