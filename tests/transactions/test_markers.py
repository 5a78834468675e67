"""Writing markers: to each leader, with retries, and not for deleted topics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from penstock.clock import SystemClock
from penstock.cluster.image import NO_LEADER, ClusterImage, PartitionState, TopicImage
from penstock.cluster.metadata import ClusterMetadata
from penstock.errors import ErrorCode, StorageError
from penstock.model import BrokerId, LeaderEpoch, TopicId, TopicPartition
from penstock.observability.logs import Logger
from penstock.records.control import Marker
from penstock.transactions import endings
from penstock.transactions.endings import Ending
from penstock.transactions.links import BrokerLinks
from penstock.transactions.markers import Markers
from support.eventually import eventually_async

ME, OTHER = BrokerId(1), BrokerId(2)
P0, P1, P2 = (TopicPartition("orders", index) for index in range(3))


class World:
    """A cluster whose leaders respond as the test says."""

    def __init__(self) -> None:
        self.image = self._with_leaders(ME, OTHER, OTHER)
        self.coming: ClusterImage | None = None
        self.store_is_down = False
        self.stuck_producer = -1
        self.written: list[tuple[BrokerId, tuple[TopicPartition, ...]]] = []
        self.refusals: list[ErrorCode | Exception] = []
        log = Logger(SystemClock(), lambda line: None, lambda *_: "")
        self.markers = Markers(ME, cast(ClusterMetadata, self), cast(BrokerLinks, self), self.write_here, log)

    @staticmethod
    def _with_leaders(*leaders: BrokerId) -> ClusterImage:
        partitions = tuple(PartitionState(leader, LeaderEpoch(1), (ME,), (ME,), 1) for leader in leaders)
        topic = TopicImage("orders", TopicId(UUID(int=1)), partitions, {}, 1)
        return ClusterImage("c").with_topics([topic] if partitions else [])

    def lead(self, *leaders: BrokerId) -> None:
        self.image = self._with_leaders(*leaders)

    async def catch_up(self) -> None:
        if self.store_is_down:
            raise StorageError("the store is down")
        if self.coming is not None:
            self.image = self.coming

    def write_here(
        self,
        marker: Marker,
        version: int,
        partitions: Sequence[TopicPartition],
        done: Callable[[Mapping[TopicPartition, ErrorCode]], None],
    ) -> None:
        self.written.append((ME, tuple(partitions)))
        if marker.producer_id != self.stuck_producer:
            done(dict.fromkeys(partitions, self._outcome()))

    async def send(self, broker_id: BrokerId, request: Callable[[Any], Awaitable[Any]]) -> Any:
        return await request(SimpleNamespace(request=partial(self.respond, broker_id)))

    async def respond(self, broker_id: BrokerId, api_key: int, version: int, fields: Any) -> Any:
        named = tuple(
            TopicPartition(topic["name"], index)
            for marker in fields["markers"]
            for topic in marker["topics"]
            for index in topic["partition_indexes"]
        )
        self.written.append((broker_id, named))
        code = self._outcome()
        partitions = [
            SimpleNamespace(partition_index=partition.partition, error_code=code) for partition in named
        ]
        topics = [SimpleNamespace(name="orders", partitions=partitions)]
        return SimpleNamespace(markers=[SimpleNamespace(producer_id=7, topics=topics)])

    def close(self) -> None: ...

    def _outcome(self) -> ErrorCode:
        outcome = self.refusals.pop(0) if self.refusals else ErrorCode.none
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def end(self, *partitions: TopicPartition, until: Callable[[], object] | None = None) -> Ending:
        done = asyncio.Event()
        ending = Ending(Marker(7, 0, True, 1), 1, partitions, done.set)
        self.markers.write(ending)
        await eventually_async(until or done.is_set)
        return ending


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "RETRY_SECONDS", 0.001)


async def test_each_leader_gets_the_markers_of_its_partitions() -> None:
    world = World()
    await world.end(P0, P1, P2)
    assert sorted(world.written) == [(ME, (P0,)), (OTHER, (P1, P2))]


@pytest.mark.parametrize(
    "refusal",
    [
        ErrorCode.not_leader_or_follower,
        ErrorCode.kafka_storage_error,
        ConnectionResetError(),
        StorageError(),
        KeyError(),
    ],
    ids=str,
)
async def test_refused_marker_is_sent_again(refusal: ErrorCode | Exception) -> None:
    world = World()
    world.refusals = [refusal, refusal]
    await world.end(P1)
    assert world.written == [(OTHER, (P1,))] * 3


def test_pause_between_marker_retries_grows_until_one_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "RETRY_SECONDS", 0.1)
    ending = Ending(Marker(7, 0, True, 1), 1, [P0, P1], lambda: None)
    pauses = [ending.next_pause_seconds() for _ in range(7)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    ending.settle([])
    assert ending.next_pause_seconds() == 2.0
    ending.settle([P0])
    assert ending.next_pause_seconds() == 0.1


async def test_marker_refused_for_a_later_producer_epoch_counts_as_written() -> None:
    world = World()
    world.refusals = [ErrorCode.invalid_producer_epoch]
    await world.end(P0)
    assert world.written == [(ME, (P0,))]


async def test_marker_is_sent_to_the_next_leader() -> None:
    world = World()
    world.lead(ME, NO_LEADER, OTHER)
    ending = await world.end(P1, until=lambda: True)
    world.lead(ME, ME, OTHER)
    async with asyncio.timeout(10):
        while not ending.is_done:
            await asyncio.sleep(0.001)
    assert world.written == [(ME, (P1,))]


async def test_transaction_ends_without_markers_for_a_deleted_topic() -> None:
    world = World()
    world.coming = world.image = ClusterImage("c")
    await world.end(P0, P1)
    assert not world.written


async def test_topic_unknown_to_the_coordinator_so_far_gets_its_markers() -> None:
    world = World()
    world.coming, world.image = world.image, ClusterImage("c")
    await world.end(P0)
    assert world.written == [(ME, (P0,))]


async def test_unknown_topic_does_not_count_as_deleted_while_the_store_is_down() -> None:
    world = World()
    world.coming = replace(world.image)
    world.image = ClusterImage("c")
    world.store_is_down = True
    ending = await world.end(P0, until=lambda: True)
    await asyncio.sleep(0.01)
    assert ending.left == {P0}
    world.store_is_down = False
    async with asyncio.timeout(10):
        while not ending.is_done:
            await asyncio.sleep(0.001)
    assert world.written == [(ME, (P0,))]


async def test_partition_that_cannot_commit_delays_no_other_transaction() -> None:
    world = World()
    world.stuck_producer = 8
    stuck = Ending(Marker(8, 0, True, 1), 1, [P0], lambda: None)
    world.markers.write(stuck)
    await world.end(P0)
    assert stuck.left == {P0}
    await world.markers.close()


async def test_transaction_without_partitions_ends_at_once() -> None:
    world = World()
    await world.end()
    assert not world.written


async def test_abandoned_ending_writes_no_more_markers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endings, "RETRY_SECONDS", 0.2)
    world = World()
    world.refusals = [ErrorCode.not_leader_or_follower]
    ending = await world.end(P0, until=lambda: world.written)
    ending.is_abandoned = True
    await asyncio.sleep(0.3)
    assert world.written == [(ME, (P0,))]
    assert not ending.is_done
    await world.markers.close()
