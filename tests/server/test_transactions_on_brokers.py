"""Transactions on several brokers: partitions, offsets and coordinators on different ones, and leader
changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from penstock.errors import ErrorCode
from penstock.storage.log import Log
from support.eventually import eventually_async
from support.harness import Harness, new_topic
from support.transaction_wire import Producer, committed_offset, fetch, find_coordinator, seen
from support.whole_brokers import Brokers, run

ORDERS = "orders"
VERSIONS = pytest.mark.parametrize("version", [1, 2])


async def retried(ask: Callable[[], Awaitable[ErrorCode]]) -> ErrorCode:
    """Send a request again after a retriable error, as Kafka's clients do; the error of the last response.

    A slow machine makes followers leave the in-sync set for a moment: then partitions and coordinators refuse requests
    until enough replicas are in sync again.
    """
    async with asyncio.timeout(20):
        while (code := await ask()).retriable:
            await asyncio.sleep(0.02)
    return code


class Cluster:
    """Three brokers, and a topic with a partition led by each."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self.at: dict[int, Harness] = {}

    async def start(self) -> None:
        for number in (1, 2, 3):
            self.at[number] = await self.brokers.start(number)
        await eventually_async(
            lambda: all(len(broker._metadata.image.brokers) == 3 for broker in self.brokers.running.values())
        )
        assignments = [(0, [1, 2, 3]), (1, [2, 3, 1]), (2, [3, 1, 2])]
        new = new_topic(ORDERS, assignments=assignments, configs={"min.insync.replicas": "2"})
        answer = await self.at[1].ask(19, 7, {"topics": [new], "timeout": 5_000, "validate_only": False})
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message
        for index, leader in enumerate((1, 2, 3)):
            await eventually_async(partial(self._leads, leader, index))

    def _leads(self, number: int, index: int) -> bool:
        replica = self.at[number].context.replicas._replicas.get((ORDERS, index))
        return replica is not None and replica.partition.is_leader

    def leader(self, index: int) -> Harness:
        [number] = [number for number in self.brokers.running if self._leads(number, index)]
        return self.at[number]

    async def producer(self, version: int, group: str = "g") -> Producer:
        coordinator = await find_coordinator(self.at[1], 1, "mine")
        of_group = await find_coordinator(self.at[1], 0, group)
        producer = Producer(self.at[coordinator], version=version, group_coordinator=self.at[of_group])
        await producer.init()
        return producer

    async def write(self, producer: Producer, value: bytes) -> None:
        for index in range(3):
            if producer.version == 1:
                assert await retried(partial(producer.add, ORDERS, index)) is ErrorCode.none
            await self.produce(producer, value, index)

    async def produce(self, producer: Producer, value: bytes, index: int) -> None:
        leader = self.leader(index)
        produced = await retried(lambda: producer.produce(ORDERS, value, partition=index, leader=leader))
        assert produced is ErrorCode.none

    async def settled(self) -> None:
        """Wait until every transaction has ended on all replicas."""

        def logs() -> list[Log]:
            return [
                self.at[number].context.replicas._replicas[ORDERS, index].log
                for number in self.brokers.running
                for index in range(3)
            ]

        await eventually_async(lambda: len({log.log_end_offset for log in logs()}) <= 3)
        await eventually_async(lambda: all(log.last_stable_offset == log.log_end_offset for log in logs()))

    async def committed(self) -> list[list[bytes]]:
        return [await self._read(index) for index in range(3)]

    async def _read(self, index: int) -> list[bytes]:
        fetched = None

        async def read() -> ErrorCode:
            nonlocal fetched
            fetched = await fetch(self.leader(index), ORDERS, partition=index)
            return ErrorCode(fetched.error_code)

        assert await retried(read) is ErrorCode.none
        assert fetched is not None
        return seen(fetched)


def run_cluster(directory: Path, scenario: Callable[[Cluster], Awaitable[None]]) -> None:
    async def body(brokers: Brokers) -> None:
        cluster = Cluster(brokers)
        await cluster.start()
        await scenario(cluster)

    run(directory, body)


@pytest.mark.slow
@VERSIONS
def test_a_transaction_is_whole_on_all_brokers(tmp_path: Path, version: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        producer = await cluster.producer(version)
        for value, offset, commit in ((b"one", 1, True), (b"two", 2, False), (b"three", 3, True)):
            await cluster.write(producer, value)
            sent = await retried(partial(producer.send_offsets, "g", ORDERS, offset))
            assert sent is ErrorCode.none
            assert await retried(partial(producer.end, commit=commit)) is ErrorCode.none
        await cluster.settled()
        assert await cluster.committed() == [[b"one", b"three"]] * 3
        assert producer.group_coordinator is not None
        async with asyncio.timeout(20):
            while (found := await committed_offset(producer.group_coordinator, "g", ORDERS)) != (
                3,
                ErrorCode.none,
            ):
                assert found[1] is ErrorCode.unstable_offset_commit, found
                await asyncio.sleep(0.01)
        states = [
            cluster.at[number].context.replicas._replicas[ORDERS, 0].log.producers.aborted
            for number in cluster.brokers.running
        ]
        assert all(list(state) == list(states[0]) and len(state) == 1 for state in states)

    run_cluster(tmp_path, scenario)


@pytest.mark.slow
@VERSIONS
@pytest.mark.parametrize("commit", [True, False])
def test_the_next_leader_continues_with_an_open_transaction(
    tmp_path: Path, version: int, commit: bool
) -> None:
    async def scenario(cluster: Cluster) -> None:
        producer = await cluster.producer(version)
        await cluster.write(producer, b"before")
        here = next(number for number in (1, 2, 3) if cluster.at[number] is producer.broker)
        index = here % 3  # led by another broker than the coordinator
        leader = cluster.leader(index)
        number = next(each for each in (1, 2, 3) if cluster.at[each] is leader)
        await cluster.brokers.stop(number)
        await eventually_async(lambda: any(cluster._leads(each, index) for each in cluster.brokers.running))
        assert cluster.leader(index).context.replicas.get(ORDERS, index).log.last_stable_offset == 0
        await cluster.produce(producer, b"after", index)
        assert await retried(lambda: producer.end(commit=commit)) is ErrorCode.none
        await cluster.settled()
        found = await cluster.committed()
        assert found[index] == ([b"before", b"after"] if commit else [])
        assert found[here - 1] == ([b"before"] if commit else [])

    run_cluster(tmp_path, scenario)
