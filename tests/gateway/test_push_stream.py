"""Streams over records in memory: turns, limits, and the positions in event ids."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest

from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.push.feed import MAX_KEPT_BYTES, Feeds
from penstock.gateway.push.group_stream import GroupStream
from penstock.gateway.push.position import decode_positions
from penstock.gateway.push.stream import PushStream
from penstock.gateway.records import Limits, RecordPage
from penstock.internal_client.records import EARLIEST
from penstock.internal_client.topic_routes import PartitionRoute, TopicRoute
from penstock.model import BrokerId, TopicId
from penstock.records.iteration import Record
from support.eventually import eventually_async

NOBODY = BrokerId(0)


def topic(partitions: int = 1) -> TopicRoute:
    route = PartitionRoute(NOBODY, 0, (NOBODY,), (NOBODY,))
    return TopicRoute("orders", TopicId(UUID(int=7)), False, (route,) * partitions)


class Records:
    """Records up to `end` in each partition, and more when `end` is moved."""

    def __init__(self, end: int, start: int = 0, size: int = 10) -> None:
        self.start, self.end, self.size = start, end, size
        self.reads = 0
        self.failure: BrokerError | OSError | None = None

    async def read(
        self, topic: str, partition: int, offset: int, limits: Limits, wait_ms: int = 0
    ) -> RecordPage:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        if not self.start <= offset <= self.end:
            raise BrokerError(ErrorCode.offset_out_of_range)
        while wait_ms and offset >= self.end:
            await asyncio.sleep(0.001)
            if self.failure is not None:
                raise self.failure
        last = min(self.end, offset + limits.max_records)
        records = tuple(Record(each, 0, None, b"x" * self.size, ()) for each in range(offset, last))
        return RecordPage(records, last, self.end, self.start)

    async def offsets(self, topic: str, partitions: Sequence[int], time_ms: int) -> Mapping[int, int]:
        return dict.fromkeys(partitions, self.start if time_ms == EARLIEST else self.end)


def feeds_of(records: Any) -> Feeds:
    return Feeds(
        records,
        lambda topic, partition, record: b"%d/%d" % (partition, record.offset) + (record.value or b""),
    )


def waits(feeds: Feeds) -> bool:
    return all(feed._waiting for feed in feeds._feeds.values())


def run(scenario: Any) -> None:
    asyncio.run(scenario())


def test_reads_from_memory_yield_to_other_streams() -> None:
    async def scenario() -> None:
        records = Records(end=20_000)
        feeds = feeds_of(records)
        first = PushStream(feeds, topic())
        first.read_from({0: 0})
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        while first.positions[0] < records.end:
            await first.take(256, 32_768, 1)
        reads = records.reads
        second = PushStream(feeds, topic())
        second.read_from({0: 0})
        task = asyncio.create_task(others())
        takes = 0
        while second.positions[0] < records.end:
            await second.take(256, 32_768, 1)
            takes += 1
        task.cancel()
        assert records.reads == reads, "it was all in memory"
        assert turns >= takes

    run(scenario)


def test_cached_pages_stay_below_the_limit() -> None:
    async def scenario() -> None:
        records = Records(end=3_000, size=20_000)
        feeds = feeds_of(records)
        stream = PushStream(feeds, topic())
        stream.read_from({0: 0})
        while stream.positions[0] < records.end:
            await stream.take(256, 32_768, 1)
        kept = sum(page.size for feed in feeds._feeds.values() for page in feed._pages.values())
        assert MAX_KEPT_BYTES / 2 < kept <= MAX_KEPT_BYTES

    run(scenario)


def test_partitions_take_turns_and_an_id_names_all_of_them() -> None:
    async def scenario() -> None:
        stream = PushStream(feeds_of(Records(end=10)), topic(3))
        stream.read_from({0: 0, 1: 0, 2: 0})
        taken = [(await stream.take(1, 1_000, 1))[0] for _ in range(6)]
        assert sorted(event.body[:1] for event in taken) == [b"0", b"0", b"1", b"1", b"2", b"2"]
        assert decode_positions(topic().id, taken[-1].id) == {0: 2, 1: 2, 2: 2}

    run(scenario)


def test_group_event_id_names_only_partitions_with_events() -> None:
    async def scenario() -> None:
        id_positions: dict[int, int] = {}
        stream = PushStream(feeds_of(Records(end=10)), topic(1_000), id_positions=id_positions)
        stream.read_from(dict.fromkeys(range(1_000), 0))
        [first] = await stream.take(1, 1_000, 1)
        assert decode_positions(topic().id, first.id) == {0: 1}
        id_positions.clear()
        [second] = await stream.take(1, 1_000, 1)
        assert decode_positions(topic().id, second.id) == {1: 1}

    run(scenario)


class SlowMember:
    """A member that commits when the test lets it."""

    def __init__(self) -> None:
        self.asked: list[Mapping[int, int]] = []
        self.may_commit = asyncio.Event()

    async def commit(self, offsets: Mapping[int, int]) -> None:
        self.asked.append(offsets)
        await self.may_commit.wait()


def test_acknowledgement_of_revoked_partition_is_too_late() -> None:
    async def scenario() -> None:
        stream = GroupStream(feeds_of(Records(end=10)), topic(), None, "readers", "me", EARLIEST)  # type: ignore[arg-type]
        stream._member = member = SlowMember()  # type: ignore[assignment]
        stream.on_assigned({0: 0})
        await stream.stream.take(10, 1_000, 1)
        assert stream.unacknowledged == 10
        assert stream.acknowledge({0: 4, 5: 9}) == [0]
        assert stream.unacknowledged == 6
        giving_up = asyncio.create_task(stream.on_revoked(frozenset({0})))
        await eventually_async(lambda: len(member.asked) == 2)
        assert stream.acknowledge({0: 6}) == []
        member.may_commit.set()
        await giving_up
        await stream.until_committed()
        assert member.asked == [{0: 4}, {0: 4}]
        assert stream.unacknowledged == 0

    run(scenario)


def test_a_message_larger_than_the_limit_is_sent_alone() -> None:
    async def scenario() -> None:
        stream = PushStream(feeds_of(Records(end=3, size=100_000)), topic())
        stream.read_from({0: 0})
        assert [len(await stream.take(256, 32_768, 1)) for _ in range(3)] == [1, 1, 1]

    run(scenario)


def test_wait_without_message_returns_none_and_next_message_wakes() -> None:
    async def scenario() -> None:
        records = Records(end=5)
        feeds = feeds_of(records)
        stream = PushStream(feeds, topic())
        stream.read_from({0: 5})
        assert await stream.take(10, 1_000, 0.01) == []
        waiting = asyncio.create_task(stream.take(10, 1_000, 10))
        await eventually_async(lambda: waits(feeds))
        records.end = 7
        assert [event.body[:3] for event in await waiting] == [b"0/5", b"0/6"]

    run(scenario)


def test_failed_wait_wakes_all_waiting_streams() -> None:
    async def scenario() -> None:
        records = Records(end=5)
        feeds = feeds_of(records)
        stream = PushStream(feeds, topic())
        stream.read_from({0: 5})
        waiting = asyncio.create_task(stream.take(1, 1_000, 10))
        await eventually_async(lambda: waits(feeds))
        records.failure = BrokerError(ErrorCode.unknown_topic_or_partition)
        with pytest.raises(BrokerError) as refusal:
            await waiting
        assert refusal.value is records.failure
        assert records.reads <= 5

    run(scenario)


def test_refused_wait_becomes_polling() -> None:
    async def scenario() -> None:
        records = Records(end=5)
        read = records.read
        records.read = lambda *asked: read(*asked[:4])  # type: ignore[method-assign]
        stream = PushStream(feeds_of(records), topic())
        stream.read_from({0: 5})
        assert await stream.take(10, 1_000, 0.1) == []
        assert records.reads <= 3
        records.end = 6
        assert len(await stream.take(10, 1_000, 10)) == 1

    run(scenario)


def test_missing_offset_becomes_the_nearest_one() -> None:
    async def scenario() -> None:
        for offset, expected in ((2, 5), (99, 9)):
            records = Records(start=5, end=9)
            feeds = feeds_of(records)
            stream = PushStream(feeds, topic())
            stream.read_from({0: offset})
            waiting = asyncio.create_task(stream.take(1, 1_000, 10))
            await eventually_async(lambda: waiting.done() or waits(feeds))  # noqa: B023
            records.end = 10
            [event] = await waiting
            assert decode_positions(topic().id, event.id) == {0: expected + 1}

    run(scenario)


def test_cancelled_reader_misses_no_message() -> None:
    async def scenario() -> None:
        records = Records(end=1_000)
        stream = PushStream(feeds_of(records), topic())
        stream.read_from({0: 0})
        seen: list[int] = []
        for turns in itertools.cycle(range(6)):
            taking = asyncio.create_task(stream.take(7, 1_000, 1))
            for _ in range(turns):
                await asyncio.sleep(0)
            if turns < 5 and taking.cancel():
                await asyncio.gather(taking, return_exceptions=True)
                continue
            seen += [decode_positions(topic().id, event.id)[0] - 1 for event in await taking]
            if len(seen) == 1_000:
                break
        assert seen == list(range(1_000))

    run(scenario)


def test_unreadable_topic_ends_stream_and_silent_broker_does_not() -> None:
    async def scenario() -> None:
        records = Records(end=5)
        stream = PushStream(feeds_of(records), topic())
        stream.read_from({0: 0})
        records.failure = OSError("nobody answers")
        waiting = asyncio.create_task(stream.take(1, 1_000, 10))
        await eventually_async(lambda: records.reads)
        records.failure = None
        assert len(await waiting) == 1
        stream.read_from({0: 4_000})
        records.failure = BrokerError(ErrorCode.topic_authorization_failed)
        with pytest.raises(BrokerError) as refusal:
            await stream.take(1, 1_000, 10)
        assert refusal.value is records.failure

    run(scenario)
