"""Copiers of one group move messages in transactions, while brokers and copiers are killed with -9 at random.

    copiers.py --messages 100000 --kills 30

What was sent to the source is in the sink afterwards, each message exactly once, and nothing stays open.
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

sys.path.insert(0, str(Path(__file__).parents[1]))

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cluster_processes import ClusterProcesses

PROGRAM = Path(__file__).with_name("copier_program.py")
SOURCE, SINK, GROUP = "source", "sink", "copiers"
PARTITIONS = 6
COPIERS = 3
SETTINGS = (
    "transaction.state.log.num.partitions=6",
    "group.min.session.timeout.ms=1000",
    "group.initial.rebalance.delay.ms=0",
)


class Copiers:
    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._started = 0
        self._running: list[subprocess.Popen[bytes]] = []

    def keep_running(self) -> None:
        """One that has ended is replaced by another."""
        self._running = [each for each in self._running if each.poll() is None]
        while len(self._running) < COPIERS:
            self._started += 1
            with (self._directory / f"copier-{self._started}.log").open("wb") as output:
                arguments = [sys.executable, str(PROGRAM), self._bootstrap, SOURCE, SINK, GROUP]
                self._running.append(subprocess.Popen(arguments, stdout=output, stderr=output))

    def kill_one(self) -> None:
        random.choice(self._running).kill()

    def close(self) -> None:
        for each in self._running:
            each.kill()
            each.wait()


class Reader:
    """What readers of committed data have seen of the sink."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "audit",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(SINK, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
        self.seen: Counter[bytes] = Counter()

    def read(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            for message in self._consumer.consume(500, min(left, 0.2)):
                if message.error() is None:
                    self.seen[message.value()] += 1

    def close(self) -> None:
        self._consumer.close()


class Feeder:
    """Sends to the source what is to be copied, a portion at a time."""

    def __init__(self, bootstrap: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for made in admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in (SOURCE, SINK)]).values():
            made.result(60)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        )

    def send(self, numbers: range) -> None:
        for number in numbers:
            self._producer.produce(SOURCE, str(number).encode(), partition=number % PARTITIONS)
            self._producer.poll(0)
        assert self._producer.flush(120) == 0


def run(directory: Path, messages: int, kills: int, say: Callable[[str], None]) -> None:
    """AssertionError where a message is missing, or there twice, or the end does not come."""
    cluster = ClusterProcesses(directory, settings=SETTINGS)
    copiers = reader = None
    try:
        cluster.start()
        feeder = Feeder(cluster.bootstrap)
        copiers, reader = Copiers(cluster.bootstrap, directory), Reader(cluster.bootstrap)
        for number in range(1, kills + 1):
            feeder.send(range(messages * (number - 1) // kills, messages * number // kills))
            copiers.keep_running()
            reader.read(random.uniform(0.5, 3))
            if number % 4 == 0:
                copiers.kill_one()
            else:
                victim = random.choice(cluster.running)
                cluster.kill_brokers([victim])
                reader.read(random.uniform(0, 3))
                cluster.start_brokers([victim])
            say(f"{number} kills, {len(reader.seen)} of {messages} copied")
        deadline = time.monotonic() + 120 + messages / 200
        while len(reader.seen) < messages:
            assert time.monotonic() < deadline, f"only {len(reader.seen)} of {messages} came"
            copiers.keep_running()
            reader.read(1)
            say(f"{len(reader.seen)} of {messages} copied")
        reader.read(10)
        twice = [value for value, count in reader.seen.items() if count > 1]
        assert not twice, f"{len(twice)} messages came more than once, the first is {twice[0]!r}"
        assert reader.seen.keys() == {str(number).encode() for number in range(messages)}
    finally:
        if copiers is not None:
            copiers.close()
        if reader is not None:
            reader.close()
        cluster.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-copiers-") as directory:
        run(Path(directory), options.messages, options.kills, print)
    print(f"{options.messages} messages, each exactly once")


if __name__ == "__main__":
    main()
