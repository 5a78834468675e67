"""Share groups under `kill -9` of brokers and consumers, and consumers that are stopped beyond their lock.

`make queue-cycles CYCLES=200` runs this file, with BROKERS=3 on a cluster. At the end of a block every record that was
produced must be accepted, and no record may be delivered after its acceptance was confirmed. With `ARGS=--dead-letters`
the group has a back-off and a dead-letter topic, consumers reject records, and each record that was rejected or has
exhausted its deliveries must have one dead letter.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from dead_letter_judge import judge_dead_letters, read_dead_letters
from kill_block import BlockResult, run_blocks

from penstock.internal_client.client import InternalClient, run
from support.broker_process import BrokerProcess
from support.cluster_processes import ClusterProcesses

TOPIC, GROUP, DEAD_LETTERS = "jobs", "workers", "dead-jobs"
REJECTED_SHARE = 0.05
PARTITIONS = 3
CONSUMERS = 4
CYCLES_A_BLOCK = 20
LOCK_SECONDS = 4.0
PATIENCE_S = 120.0
PROGRAM = Path(__file__).with_name("share_consumer_program.py")
SETTINGS = (
    "group.share.heartbeat.interval.ms=500",
    "group.share.session.timeout.ms=10000",
    "share.coordinator.state.topic.num.partitions=3",
    "share.coordinator.snapshot.update.records.per.snapshot=20",
)
Place = tuple[int, int]
"""Partition and offset."""


class Consumer:
    """One consumer process after the other, with the lines of all of them."""

    def __init__(self, directory: Path, number: int, bootstrap: str, rejected_share: float = 0.0) -> None:
        """`rejected_share` is the share of the records that the consumer rejects."""
        self._rejected_share = rejected_share
        self._path = directory / f"consumer-{number}.txt"
        self._number = number
        self._bootstrap = bootstrap
        self._starts = 0
        self.resumed_ns: list[int] = []
        """Times at which the process went on after it was stopped."""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._starts += 1
        seed = self._number * 1000 + self._starts
        arguments = (self._bootstrap, GROUP, TOPIC, str(seed), str(self._rejected_share))
        with self._path.open("ab") as lines:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), *arguments], stdout=lines, stderr=subprocess.DEVNULL
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop_beyond_lock(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        time.sleep(LOCK_SECONDS + 1)
        self.resumed_ns.append(time.monotonic_ns())
        self._process.send_signal(signal.SIGCONT)

    def events(self) -> list[tuple[int, str, Place]]:
        found = []
        content = self._path.read_text() if self._path.exists() else ""
        for line in content.splitlines():
            parts = line.split()
            if len(parts) < 3 or parts[1] not in "DTARJ":
                continue  # cut by a kill
            for place in parts[2:]:
                partition, _, offset = place.partition(":")
                if offset.isdigit():
                    found.append((int(parts[0]), parts[1], (int(partition), int(offset))))
        return found

    def was_stopped(self, when_ns: int) -> bool:
        """Whether records of this moment may have been acquired before the process was stopped."""
        late_ns = int((LOCK_SECONDS + 10) * 1e9)
        return any(resumed - late_ns <= when_ns <= resumed + late_ns for resumed in self.resumed_ns)


class Load:
    """Records that are produced, with the places of those that were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.stored: set[Place] = set()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )

    def send(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(TOPIC, b"x" * 100, on_delivery=self._on_delivery)
        self._producer.poll(0)

    def finish(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0

    def _on_delivery(self, error: object, message: object) -> None:
        if error is None:
            self.stored.add((message.partition(), message.offset()))  # type: ignore[attr-defined]


def run_block(
    directory: Path,
    seed: int,
    cycles: int,
    say: Callable[[str], None],
    brokers: int = 1,
    *,
    has_dead_letters: bool = False,
) -> BlockResult:
    source = random.Random(seed)
    cluster: BrokerProcess | ClusterProcesses
    cluster = (
        ClusterProcesses(directory, brokers, SETTINGS) if brokers > 1 else BrokerProcess(directory, SETTINGS)
    )
    share = REJECTED_SHARE if has_dead_letters else 0.0
    consumers = [Consumer(directory, number, cluster.bootstrap, share) for number in range(CONSUMERS)]
    cluster.start()
    try:
        _prepare(cluster.bootstrap, brokers, has_dead_letters)
        load = Load(cluster.bootstrap)
        for consumer in consumers:
            consumer.start()
        for cycle in range(cycles):
            say(f"seed {seed}: cycle {cycle + 1} of {cycles}")
            load.send(source.randrange(50, 400))
            time.sleep(source.random() * 1.5)
            _disturb(cluster, consumers, source)
        load.finish()
        return _judge(cluster.bootstrap, load, consumers, cycles, has_dead_letters)
    finally:
        for consumer in consumers:
            consumer.kill()
        cluster.kill()
        if isinstance(cluster, ClusterProcesses):
            cluster.kill_zookeeper()


def _prepare(bootstrap: str, brokers: int, has_dead_letters: bool) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, brokers)])[TOPIC].result(30)
    configs = {
        "share.auto.offset.reset": "earliest",
        "share.record.lock.duration.ms": str(int(LOCK_SECONDS * 1000)),
        "share.delivery.count.limit": "10",
    }
    if has_dead_letters:
        admin.create_topics([NewTopic(DEAD_LETTERS, 2, brokers)])[DEAD_LETTERS].result(30)
        configs["errors.deadletterqueue.topic.name"] = DEAD_LETTERS
        configs["share.retry.backoff.ms"] = "200,1000"
        configs["share.delivery.count.limit"] = "2"
    entries = [ConfigEntry(n, v, incremental_operation=AlterConfigOpType.SET) for n, v in configs.items()]
    resource = ConfigResource(ConfigResource.Type.GROUP, GROUP, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def _disturb(
    cluster: BrokerProcess | ClusterProcesses, consumers: list[Consumer], source: random.Random
) -> None:
    kind = source.random()
    consumer = source.choice(consumers)
    if kind < 0.5:
        if isinstance(cluster, ClusterProcesses):
            number = source.choice(sorted(cluster.brokers))
            cluster.kill_brokers([number])
            time.sleep(source.random())
        else:
            cluster.kill()
        cluster.start()
    elif kind < 0.9:
        consumer.kill()
        consumer.start()
    else:
        consumer.stop_beyond_lock()


def _judge(
    bootstrap: str, load: Load, consumers: list[Consumer], cycles: int, has_dead_letters: bool
) -> BlockResult:
    deadline = time.monotonic() + PATIENCE_S
    while (lag := _lag(bootstrap)) and time.monotonic() < deadline:
        time.sleep(0.5)
    time.sleep(LOCK_SECONDS + 2)  # a record that came back would be delivered by now
    events = [(each, *event) for each in consumers for event in each.events()]
    accepted: dict[Place, int] = {}
    for _, when_ns, kind, place in events:
        if kind == "A":
            accepted[place] = min(when_ns, accepted.get(place, when_ns))
    # A consumer that was killed has perhaps accepted records, and could not say so.
    tried = {place for _, _, kind, place in events if kind == "T"}
    letters = read_dead_letters(bootstrap, DEAD_LETTERS) if has_dead_letters else {}
    rejected, confirmed = ({place for _, _, kind, place in events if kind == each} for each in "RJ")
    violations = [
        f"{place} was produced and never accepted" for place in sorted(load.stored - tried - set(letters))
    ]
    if has_dead_letters:
        violations += judge_dead_letters(letters, rejected, confirmed - tried)
    violations += [
        f"{place} was delivered after its acceptance was confirmed"
        for each, when_ns, kind, place in events
        if kind == "D" and when_ns > accepted.get(place, when_ns) and not each.was_stopped(when_ns)
    ]
    if lag:
        violations.append(f"{lag} records are not settled {PATIENCE_S:.0f} s after the last fault")
    if not accepted:
        violations.append("nothing was accepted: the block has tested nothing")
    return BlockResult(cycles, len(load.stored), len(accepted), tuple(violations[:20]))


def _lag(bootstrap: str) -> int:
    """Number of records that the group has not settled."""
    client = InternalClient.to(bootstrap, "share-cycles", PATIENCE_S)
    offsets = run(client, lambda client: client.share_groups.offsets(GROUP))
    return sum(1 if each.lag is None else each.lag for each in offsets)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dead-letters", action="store_true", help="reject records, with a back-off")
    parser.add_argument("--state", type=Path, default=Path("build/queue-cycles"))
    options = parser.parse_args()
    brokers: int = options.brokers
    has_dead_letters: bool = options.dead_letters

    def block(directory: Path, seed: int, cycles: int, say: Callable[[str], None]) -> BlockResult:
        return run_block(directory, seed, cycles, say, brokers, has_dead_letters=has_dead_letters)

    state, kept = options.state / str(brokers), "nothing lost, nothing accepted twice"
    if has_dead_letters:
        state, kept = state.with_name(f"{brokers}-dead-letters"), f"{kept}, one dead letter each"
    return run_blocks(block, state, options.cycles, CYCLES_A_BLOCK, options.seed, "kills", kept)


if __name__ == "__main__":
    sys.exit(main())
