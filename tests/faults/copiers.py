"""Copiers of one group move messages in transactions while brokers and copiers are killed at random.

    copiers.py --messages 100000 --kills 30

The source always has messages to copy, so that kills hit open transactions. At the end the sink contains each
message of the source exactly once, and no transaction is open.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.cluster_processes import PATIENCE_S, ClusterProcesses

PROGRAM = Path(__file__).with_name("copier_program.py")
SOURCE, SINK, GROUP = "source", "sink", "copiers"
PARTITIONS = 6
COPIERS = 3
AHEAD = 600
"""Number of messages ahead of the copiers: enough for all of them, and few compared to the messages between
two kills.
"""
DEATH_S = 3.0
"""Longest downtime of a killed broker, in seconds."""
STALL_S = 120.0
SETTINGS = (
    "transaction.state.log.num.partitions=6",
    "group.min.session.timeout.ms=1000",
    "group.initial.rebalance.delay.ms=0",
)
VICTIMS = ("broker", "broker", "copier", "broker", "cluster")
"""Victims of the kills in turn; `cluster` means all brokers at once."""


class Copiers:
    """Copier processes. A replacement inherits the transactional id, so that open transactions are aborted at
    once.
    """

    def __init__(self, bootstrap: str, directory: Path, count: int = COPIERS) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._count = count
        self._started = 0
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def keep_running(self) -> None:
        """Replace copiers that have ended."""
        for number in range(self._count):
            transactional_id = f"copier-{number}"
            process = self._running.get(transactional_id)
            if process is None or process.poll() is not None:
                self._running[transactional_id] = self._start(transactional_id)

    def kill_one(self) -> None:
        random.choice(list(self._running.values())).kill()

    def close(self) -> None:
        for each in self._running.values():
            each.kill()
            each.wait()

    def _start(self, transactional_id: str) -> subprocess.Popen[bytes]:
        self._started += 1
        arguments = [sys.executable, str(PROGRAM), self._bootstrap, SOURCE, SINK, GROUP, transactional_id]
        with (self._directory / f"copier-{self._started}.log").open("wb") as output:
            return subprocess.Popen(arguments, stdout=output, stderr=output)


class Feeder:
    """Writes to the source, so that it stays ahead of the copiers."""

    def __init__(self, bootstrap: str, messages: int | None) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for made in admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in (SOURCE, SINK)]).values():
            made.result(PATIENCE_S)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._messages = messages
        self.sent = 0
        self._errors: list[str] = []

    def feed(self, copied: int) -> None:
        goal = copied + AHEAD
        for number in range(self.sent, goal if self._messages is None else min(goal, self._messages)):
            value = str(number).encode()
            self._producer.produce(
                SOURCE, value, partition=number % PARTITIONS, on_delivery=self._on_delivery
            )
            self.sent = number + 1
        self.check()

    def end(self) -> None:
        """Stop writing."""
        self._messages = self.sent

    def check(self) -> None:
        self._producer.poll(0)
        assert not self._errors, f"{len(self._errors)} messages did not get to the source: {self._errors[0]}"

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(str(error))


class Reader:
    """Reader of committed messages in the sink."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._consumer = self._connect("read_committed")
        self._partitions = [TopicPartition(SINK, index, OFFSET_BEGINNING) for index in range(PARTITIONS)]
        self._consumer.assign(self._partitions)
        self.seen: Counter[bytes] = Counter()
        self._ends = [0] * PARTITIONS

    def read(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            for message in self._consumer.consume(500, min(left, 0.2)):
                if message.error() is None:
                    self.seen[message.value()] += 1
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    self._ends[message.partition()] = message.offset()

    def read_to_end(self) -> None:
        """Wait until no transaction is open in the sink, then read up to its end."""
        everything = self._connect("read_uncommitted")
        deadline = time.monotonic() + STALL_S
        while self._ends != (ends := [self._end(everything, each) for each in self._partitions]):
            assert time.monotonic() < deadline, f"read up to {self._ends}, but the ends are {ends}"
            self.read(0.5)
        everything.close()

    def close(self) -> None:
        self._consumer.close()

    def _end(self, consumer: Consumer, partition: TopicPartition) -> int:
        _, end = consumer.get_watermark_offsets(partition, PATIENCE_S)
        return int(end)

    def _connect(self, isolation: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "audit",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "log_level": 0,
            }
        )


class Experiment:
    """Copiers on a cluster, and the checks. Without a number of messages, copying continues until `finish`."""

    def __init__(
        self, cluster: ClusterProcesses, directory: Path, messages: int | None = None, copiers: int = COPIERS
    ) -> None:
        self._cluster = cluster
        self._feeder = Feeder(cluster.bootstrap, messages)
        self._reader = Reader(cluster.bootstrap)
        self._copiers = Copiers(cluster.bootstrap, directory, copiers)

    def run(self, messages: int, kills: int, say: Callable[[str], None]) -> None:
        """Copy this many messages with this many kills; raise the AssertionErrors of `finish`."""
        for number, due in enumerate(sorted(random.sample(range(messages), kills))):
            self._copy_until(due)
            victim = VICTIMS[number % len(VICTIMS)]
            say(f"{len(self._reader.seen)} of {messages} copied; a {victim} is killed")
            self._kill(victim)
        self._copy_until(messages)
        self.finish()

    def finish(self) -> int:
        """Return the number of copied messages; AssertionError if a message is missing or duplicated, or if
        copying stalls.
        """
        self._feeder.end()
        self._copy_until(self._feeder.sent)
        self._copiers.close()
        self._reader.read_to_end()
        twice = [value for value, count in self._reader.seen.items() if count > 1]
        assert not twice, f"{len(twice)} messages came more than once, the first is {twice[0]!r}"
        assert self._reader.seen.keys() == {str(number).encode() for number in range(self._feeder.sent)}
        return self._feeder.sent

    def close(self) -> None:
        self._copiers.close()
        self._reader.close()

    def _copy_until(self, copied: int) -> None:
        seen = self._reader.seen
        before, deadline = len(seen), time.monotonic() + STALL_S
        while len(seen) < copied:
            self.copy_for(0.05)
            if len(seen) > before:
                before, deadline = len(seen), time.monotonic() + STALL_S
            assert time.monotonic() < deadline, f"{before} came, then none for {STALL_S} s"

    def copy_for(self, seconds: float) -> None:
        self._feeder.feed(len(self._reader.seen))
        self._copiers.keep_running()
        self._reader.read(seconds)

    def _kill(self, victim: str) -> None:
        if victim == "copier":
            self._copiers.kill_one()
            return
        running = self._cluster.running
        chosen = running if victim == "cluster" else [random.choice(running)]
        self._cluster.kill_brokers(chosen)
        self.copy_for(random.uniform(0, DEATH_S))
        self._cluster.start_brokers(chosen)


def run(directory: Path, messages: int, kills: int, say: Callable[[str], None]) -> None:
    cluster = ClusterProcesses(directory, settings=SETTINGS)
    try:
        cluster.start()
        experiment = Experiment(cluster, directory, messages)
        try:
            experiment.run(messages, kills, say)
        finally:
            experiment.close()
    finally:
        cluster.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=30)
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-copiers-") as directory:
        run(Path(directory), options.messages, options.kills, lambda text: print(text, flush=True))
    took_s = time.monotonic() - began
    print(f"{options.messages} messages, {options.kills} kills, each message exactly once, in {took_s:.0f} s")


if __name__ == "__main__":
    main()
