"""The delivery setting when consumers are killed: at-most-once never repeats, at-least-once never loses."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock import Consumer, Producer
from penstock.testing import Broker
from support.eventually import eventually

PROGRAM = Path(__file__).with_name("consumer_program.py")
PATIENCE_S = 30.0
TOPIC = "work"


@pytest.fixture(scope="module")
def quick_broker(starts_processes: None) -> Iterator[Broker]:
    """A broker with a short session timeout, so that killed members leave the group soon."""
    with Broker({"group.min.session.timeout.ms": "500"}) as broker:
        yield broker


class Worker:
    """A consumer process and the notes that it writes."""

    def __init__(self, broker: Broker, topic: str, delivery: str, notes: Path, stop: str = "never") -> None:
        self.notes = notes
        arguments = [broker.bootstrap, topic, delivery, str(notes), stop]
        self.process = subprocess.Popen([sys.executable, str(PROGRAM), *arguments])

    def lines(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    def wait_until(self, condition: Callable[[list[str]], bool]) -> list[str]:
        def found() -> list[str] | None:
            lines = self.lines()
            if condition(lines):
                return lines
            assert self.process.poll() is None, "the worker ended"
            return None

        return eventually(found, within_s=PATIENCE_S, details=lambda: self.lines()[-5:]) or []

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def send(broker: Broker, topic: str, count: int) -> None:
    with Producer(broker.bootstrap) as producer:
        for number in range(count):
            producer.send(topic, str(number))


def is_longer(count: int, lines: list[str]) -> bool:
    return len(lines) > count


def go_on(broker: Broker, topic: str, count: int, **options: Any) -> list[str]:
    """Read as the next member of the group."""
    with Consumer(
        topic, group=topic, bootstrap=broker.bootstrap, value_deserializer="str", **options
    ) as consumer:
        found: list[str] = []
        while len(found) < count:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"only {found}"
            found.append(message.value)
        return found


def test_at_least_once_repeats_processed_messages_without_a_commit(
    quick_broker: Broker, tmp_path: Path, topic_name: str
) -> None:
    send(quick_broker, topic_name, 10)
    worker = Worker(quick_broker, topic_name, "at-least-once", tmp_path / "notes", "after-work")
    lines = worker.wait_until(lambda lines: "stopped" in lines)
    worker.kill()
    assert lines == ["0", "1", "2", "3", "stopped"]
    assert go_on(quick_broker, topic_name, 10) == [str(number) for number in range(10)]


def test_at_most_once_skips_committed_messages_that_were_not_processed(
    quick_broker: Broker, tmp_path: Path, topic_name: str
) -> None:
    send(quick_broker, topic_name, 10)
    worker = Worker(quick_broker, topic_name, "at-most-once", tmp_path / "notes", "before-work")
    (line,) = worker.wait_until(bool)
    worker.kill()
    committed = int(line.removeprefix("committed "))
    send(quick_broker, topic_name, 20)
    expected = [*map(str, range(10)), *map(str, range(20))][committed + 1 :]
    assert go_on(quick_broker, topic_name, len(expected), delivery="at-most-once") == expected


def test_at_most_once_skips_the_message_in_progress(
    quick_broker: Broker, tmp_path: Path, topic_name: str
) -> None:
    send(quick_broker, topic_name, 4)
    worker = Worker(quick_broker, topic_name, "at-most-once", tmp_path / "notes", "after-work")
    worker.wait_until(lambda lines: "stopped" in lines)
    worker.kill()
    send(quick_broker, topic_name, 1)
    assert go_on(quick_broker, topic_name, 1, delivery="at-most-once") == ["0"]


@pytest.mark.parametrize("delivery", ["at-most-once", "at-least-once"])
def test_delivery_guarantee_holds_when_consumers_are_killed(
    delivery: str, quick_broker: Broker, tmp_path: Path, topic_name: str
) -> None:
    notes = tmp_path / "notes"
    chance = random.Random(4)
    count = 0
    with Producer(quick_broker.bootstrap) as producer:
        for _ in range(5):
            seen = len(notes.read_text().splitlines()) if notes.exists() else 0
            worker = Worker(quick_broker, topic_name, delivery, notes)
            for _ in range(2000):
                producer.send(topic_name, str(count))
                count += 1
            worker.wait_until(partial(is_longer, seen))
            time.sleep(chance.random() * 0.05)
            worker.kill()
        producer.send_and_wait(topic_name, "end")
    worker = Worker(quick_broker, topic_name, delivery, notes)
    lines = worker.wait_until(lambda lines: "end" in lines)
    worker.kill()
    numbers = [int(line) for line in lines if line != "end"]
    if delivery == "at-most-once":
        assert len(numbers) == len(set(numbers))
        assert numbers == sorted(numbers)
    else:
        assert set(numbers) == set(range(count))
