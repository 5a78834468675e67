"""A queue with dead letters while its broker is killed: nothing is lost, and each dead letter is written once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from penstock import ClientError, Queue
from penstock.internal_client.client import InternalClient, run
from penstock.internal_client.dead_letters import DeadLetter, Selection
from support.broker_process import BrokerProcess
from support.eventually import eventually

T = TypeVar("T")
MESSAGES = 120
KILLS = 3
SETTINGS = ("durability=fsync", "group.share.min.record.lock.duration.ms=100")


@pytest.fixture
def broker(starts_processes: None, tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, SETTINGS)
    process.start()
    try:
        yield process
    finally:
        process.kill()


def test_killed_broker_writes_each_dead_letter_once(broker: BrokerProcess) -> None:
    seen = Seen()
    with Queue.create(
        "jobs", partitions=2, lock_s=1, max_attempts=10, dead_letter="dead", bootstrap=broker.bootstrap
    ) as queue:
        for number in range(MESSAGES):
            queue.send(number)
        for _ in range(KILLS):
            seen.work(queue, MESSAGES // (KILLS + 1))
            broker.kill()
            broker.start()
        eventually(lambda: seen.is_empty(queue, broker), "everything is settled", within_s=60.0)
    letters = _ask(broker, _find)
    origins = [each.origin for each in letters]
    assert len(origins) == len(set(origins))
    values = {int(each.record.value or b"-1") for each in letters}
    assert seen.rejected <= values
    assert not values & seen.accepted
    assert set(range(MESSAGES)) - values - seen.accepted <= seen.unknown


class Seen:
    """The outcomes of settlements, as the consumer knows them."""

    def __init__(self) -> None:
        self.accepted: set[int] = set()
        self.rejected: set[int] = set()
        self.unknown: set[int] = set()

    def work(self, queue: Queue, count: int) -> None:
        """Settle some messages: every third one is rejected."""
        for message in queue.receive_many(count, 1.0):
            is_bad = message.value % 3 == 0
            try:
                message.reject("every third") if is_bad else message.accept()
            except ClientError:
                self.unknown.add(message.value)
            else:
                (self.rejected if is_bad else self.accepted).add(message.value)

    def is_empty(self, queue: Queue, broker: BrokerProcess) -> bool:
        self.work(queue, 50)
        return _ask(broker, lambda client: client.queues.describe("jobs")).depth == 0


async def _find(client: InternalClient) -> list[DeadLetter]:
    return await client.dead_letters.find(await client.queues.get("jobs"), Selection())


def _ask(broker: BrokerProcess, work: Callable[[InternalClient], Awaitable[T]]) -> T:
    return run(InternalClient.to(broker.bootstrap, "test", 20.0), work)
