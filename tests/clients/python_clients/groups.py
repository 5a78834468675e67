"""Helpers of the group tests: member processes, a steady feed, and checks of the records that members read."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from support.broker_process import Address
from support.eventually import eventually

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
SESSION_MS = 1_500
HEARTBEAT_MS = 300
PATIENCE_S = 20.0
FEED_INTERVAL_S = 0.02
BROKER_SETTINGS = (
    "durability=os",
    "group.initial.rebalance.delay.ms=0",
    "group.min.session.timeout.ms=500",
    f"group.consumer.session.timeout.ms={SESSION_MS}",
    f"group.consumer.heartbeat.interval.ms={HEARTBEAT_MS}",
)
Place = tuple[str, int]

_KCAT_RECORD = '{"event":"record","topic":"%t","partition":%p,"offset":%o,"value":"%s"}\\n'
_KCAT_REBALANCE = re.compile(r"rebalanced .*?: (assigned|revoked): (.*)")
_KCAT_PLACE = re.compile(r"(\S+) \[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Kind:
    """A client library with its configuration for short sessions."""

    name: str
    library: str
    config: dict[str, Any]

    def with_config(self, **more: Any) -> Kind:
        named = {name.replace("_", ".") if self.library == "confluent" else name: more[name] for name in more}
        return Kind(self.name, self.library, self.config | named)


_ROUND = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": HEARTBEAT_MS}
CLASSIC = Kind(
    "confluent-classic",
    "confluent",
    {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS},
)
COOPERATIVE = Kind(
    "confluent-cooperative",
    "confluent",
    CLASSIC.config | {"partition.assignment.strategy": "cooperative-sticky"},
)
CONSUMER = Kind("confluent-consumer", "confluent", {"group.protocol": "consumer"})
AIOKAFKA = Kind("aiokafka", "aiokafka", _ROUND)
KAFKA_PYTHON = Kind("kafka-python", "kafka-python", _ROUND)
KCAT_KIND = Kind("kcat", "kcat", CLASSIC.config)


def each_kind(*kinds: Kind) -> pytest.MarkDecorator:
    marks = {"kcat": pytest.mark.skipif(KCAT is None, reason="kcat is not installed")}
    shown = [pytest.param(kind, id=kind.name, marks=marks.get(kind.name, ())) for kind in kinds]
    return pytest.mark.parametrize("kind", shown)


class Member:
    """A group member process and the events that it printed."""

    def __init__(self, kind: Kind, broker: Address, group: str, topics: Sequence[str]) -> None:
        self.events: list[dict[str, Any]] = []
        self.said: list[str] = []
        self._process = subprocess.Popen(
            _command(kind, broker, group, topics), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        streams = ((self._process.stdout, self._listen), (self._process.stderr, self._overhear))
        self._threads = [threading.Thread(target=work, args=(stream,)) for stream, work in streams]
        for thread in self._threads:
            thread.start()

    @property
    def owned(self) -> frozenset[Place]:
        owned: set[Place] = set()
        for event in list(self.events):
            places = {(topic, number) for topic, number in event.get("partitions", ())}
            owned = owned | places if event["event"] == "assigned" else owned - places
        return frozenset(owned)

    @property
    def records(self) -> list[dict[str, Any]]:
        return [event for event in list(self.events) if event["event"] == "record"]

    @property
    def rebalances(self) -> list[tuple[str, frozenset[Place]]]:
        """Assigned and revoked partitions in order; empty assignments are left out."""
        told = [event for event in list(self.events) if event.get("partitions")]
        return [
            (event["event"], frozenset((topic, number) for topic, number in event["partitions"]))
            for event in told
        ]

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def leave(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(PATIENCE_S)
        finally:
            self.kill()
        assert code == 0, "\n".join(self.said)

    def _end(self) -> None:
        self._process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    def _listen(self, stream: Iterable[str]) -> None:
        for line in stream:
            if line.endswith("}\n"):
                self.events.append({"at": time.monotonic()} | json.loads(line))

    def _overhear(self, stream: Iterable[str]) -> None:
        for line in stream:
            self.said.append(line)
            if found := _KCAT_REBALANCE.search(line):
                places = [(topic, int(number)) for topic, number in _KCAT_PLACE.findall(found[2])]
                self.events.append({"event": found[1], "at": time.monotonic(), "partitions": places})


class Group:
    """Start members, and end all of them with the test."""

    def __init__(self, broker: Address, name: str, stack: ExitStack) -> None:
        self.name = name
        self._broker = broker
        self._stack = stack

    def join(self, kind: Kind, *topics: str) -> Member:
        member = Member(kind, self._broker, self.name, topics)
        self._stack.callback(member.kill)
        return member


class Feed:
    """Writes numbers with timestamps to every partition of a topic until it is stopped."""

    def __init__(self, broker: Address, topic: str, partitions: int) -> None:
        self.counts = dict.fromkeys(range(partitions), 0)
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "acks": "all"})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            assert self._producer.flush(PATIENCE_S) == 0

    def _run(self) -> None:
        while not self._stop.wait(FEED_INTERVAL_S):
            for partition in self.counts:
                value = f"{self.counts[partition]} {time.monotonic()}"
                self._producer.produce(self._topic, value, partition=partition)
                self.counts[partition] += 1
            self._producer.poll(0)

    def all_read_by(self, *members: Member) -> bool:
        """Whether the members together read every number."""
        seen = {(record["partition"], record["offset"]) for member in members for record in member.records}
        return all((partition, n) in seen for partition, count in self.counts.items() for n in range(count))


@contextmanager
def feeding(broker: Address, topic: str, partitions: int) -> Iterator[Feed]:
    feed = Feed(broker, topic, partitions)
    try:
        yield feed
    finally:
        feed.stop()


def duplicates(*members: Member) -> dict[tuple[int, int], int]:
    """Partition and offset of records that were read more than once."""
    read = Counter((record["partition"], record["offset"]) for member in members for record in member.records)
    return {place: count for place, count in read.items() if count > 1}


def longest_wait_s(member: Member, partitions: Iterable[int], since: float) -> float:
    """The longest time from the creation to the arrival of a record in these partitions, for records created
    `since`.
    """
    chosen = set(partitions)
    born = [(record, float(record["value"].split()[1])) for record in member.records]
    return max(float(r["at"]) - at for r, at in born if at >= since and r["partition"] in chosen)


def share(places: Iterable[Place], members: Sequence[Member]) -> bool:
    """Whether every partition has exactly one owner, and every member owns a partition."""
    owned = [member.owned for member in members]
    return all(owned) and Counter(place for each in owned for place in each) == Counter(places)


def wait_for(
    condition: Callable[[], bool], what: str, *members: Member, within_s: float = PATIENCE_S
) -> None:
    """Wait for a condition of a group; a failure shows the assignment and the last lines of each member."""

    def states() -> object:
        return [(sorted(member.owned), member.rebalances, member.said[-5:]) for member in members]

    eventually(condition, what, within_s=within_s, details=states)


def _command(kind: Kind, broker: Address, group: str, topics: Sequence[str]) -> list[str]:
    if kind.library != "kcat":
        options = {"bootstrap": broker.bootstrap, "group": group, "topics": topics, "config": kind.config}
        script = Path(__file__).with_name("group_member.py")
        return [sys.executable, str(script), kind.library, json.dumps(options)]
    settings = kind.config | {"auto.offset.reset": "earliest", "auto.commit.interval.ms": 200}
    chosen = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
    return [str(KCAT), "-b", broker.bootstrap, *chosen, "-u", "-f", _KCAT_RECORD, "-G", group, *topics]
