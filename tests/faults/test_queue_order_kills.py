"""A queue with order by key and priorities while brokers and consumers are killed: no message overtakes its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from linked_cluster import StartCluster

from penstock import ClientError, Queue
from penstock.client.queue import QueueMessage
from support.broker_process import BrokerProcess
from support.eventually import eventually

KEYS = 10
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


class Worker:
    """Settles messages and judges each delivery by the settlements before it."""

    def __init__(self) -> None:
        self.done: set[int] = set()
        """Messages that were settled, or may be."""
        self.seen: set[int] = set()
        self.turn = 0

    def work(self, queue: Queue) -> bool:
        """Receive and settle some messages; returns whether all were seen and settled."""
        try:
            messages = queue.receive_many(20, 1.0)
        except ClientError:
            return False
        values = [message.value for message in messages]
        assert len({value % KEYS for value in values}) == len(values), "two messages of a key are in flight"
        for message in messages:
            earlier = set(range(message.value % KEYS, message.value, KEYS))
            assert earlier <= self.done, f"{message.value} was delivered before {earlier - self.done}"
            self.seen.add(message.value)
            self._settle(message)
        return len(self.done) == MESSAGES

    def _settle(self, message: QueueMessage) -> None:
        self.turn += 1
        if self.turn % 7 == 0:
            return  # as a consumer that was killed: the lock expires
        try:
            if self.turn % 5 == 0:
                message.release(0)
            else:
                message.accept()
                self.done.add(message.value)
        except ClientError:
            if self.turn % 5:
                self.done.add(message.value)


def handle_all(bootstrap: str, partitions: int, kills: Sequence[Callable[[], None]]) -> None:
    """Send messages, handle them in the order of their keys while brokers are killed, and see all of them settled."""
    worker = Worker()
    settings: dict[str, Any] = {"order": "key", "priorities": True, "max_attempts": 10}
    with Queue.create("jobs", partitions=partitions, lock_s=1, bootstrap=bootstrap, **settings) as queue:
        for number in range(MESSAGES):
            queue.send(number, key=str(number % KEYS), priority=number * 7 % 10)
    # Without the extension of locks, which a killed consumer does not do either.
    with Queue("jobs", max_lock_s=0.1, bootstrap=bootstrap) as queue:
        for kill in kills:
            for _ in range(4):
                worker.work(queue)
            kill()
        eventually(lambda: worker.work(queue), "everything is settled", within_s=120.0)
    assert worker.seen == set(range(MESSAGES))


def test_order_of_keys_holds_while_the_broker_is_killed(broker: BrokerProcess) -> None:
    def kill() -> None:
        broker.kill()
        broker.start()

    handle_all(broker.bootstrap, 1, [kill] * KILLS)


def test_order_of_keys_holds_while_leaders_of_a_cluster_are_killed(start_cluster: StartCluster) -> None:
    cluster = start_cluster(*SETTINGS[1:], linked=False)

    def killing(broker: int) -> Callable[[], None]:
        def kill() -> None:
            cluster.kill_brokers([broker])
            cluster.start_brokers([broker])
            cluster.wait_until_healed()

        return kill

    handle_all(cluster.bootstrap, 3, [killing(broker) for broker in (1, 2, 3)])
