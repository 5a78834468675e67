"""Delayed messages of a topic that are pending: count, list, show and cancel them, at the partition leaders.

The id of a message is its partition and the offset at which it was first stored, as in `3-1042`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.delay.headers import CANCEL
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.inspection import InspectionCalls
from penstock.internal_client.producer import IdempotentProducer
from penstock.internal_client.topics import TopicCalls
from penstock.model import BrokerId
from penstock.records.building import NewRecord

MAX_PAGE = 1_000
_LAST_OFFSET = 2**62
_ID = re.compile(r"(\d{1,9})-(\d{1,18})", re.ASCII)
_CURSOR = re.compile(r"(-?\d{1,18})-(\d{1,9})-(\d{1,18})", re.ASCII)


class DelayedMessageId(NamedTuple):
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}-{self.offset}"

    @classmethod
    def parse(cls, text: str) -> DelayedMessageId:
        """Parse a message id. Raises ValueError for any other text."""
        found = _ID.fullmatch(text)
        if found is None:
            raise ValueError(text)
        return cls(int(found[1]), int(found[2]))


class PendingMessage(NamedTuple):
    """Pending message. The order of the fields is the order of lists."""

    due_ms: int
    partition: int
    offset: int

    @property
    def id(self) -> DelayedMessageId:
        return DelayedMessageId(self.partition, self.offset)

    @property
    def cursor(self) -> str:
        """Position of this message in a list, as text."""
        return f"{self.due_ms}-{self.partition}-{self.offset}"

    @classmethod
    def parse_cursor(cls, text: str) -> PendingMessage:
        """Message at the position that a cursor stands for. Raises ValueError if the text is not a cursor."""
        found = _CURSOR.fullmatch(text)
        if found is None:
            raise ValueError(text)
        return cls(*map(int, found.groups()))


class PendingPage(NamedTuple):
    total: int
    """Number of pending messages of the topic or partition."""
    messages: Sequence[PendingMessage]


class DelayedCalls:
    def __init__(self, topics: TopicCalls, inspection: InspectionCalls) -> None:
        self._topics = topics
        self._inspection = inspection

    async def page(
        self, topic: str, partition: int | None = None, after: PendingMessage | None = None, limit: int = 100
    ) -> PendingPage:
        """Return up to `limit` pending messages after the message `after`, ordered by due time, partition and
        offset.
        """
        leaders = await self._leaders(topic)
        wanted = range(len(leaders)) if partition is None else [partition]
        answers = await asyncio.gather(
            *(self._list(leaders, topic, each, after, min(limit, MAX_PAGE)) for each in wanted)
        )
        messages = sorted(message for answer in answers for message in answer.messages)
        return PendingPage(sum(answer.total for answer in answers), messages[:limit])

    async def show(self, topic: str, message: DelayedMessageId) -> Any:
        """Return due time, key, value and headers of a pending message. Raises RESOURCE_NOT_FOUND if it is
        not pending.
        """
        leader = _leader_of(await self._leaders(topic), topic, message.partition)
        return await self._inspection.delayed_message(leader, topic, message.partition, message.offset)

    async def cancel(
        self, producer: IdempotentProducer, topic: str, message: DelayedMessageId, now_ms: int
    ) -> None:
        """Cancel a message. Raises INVALID_RECORD if it is not pending. The cancellation is final when this
        returns.
        """
        leaders = await self._leaders(topic)
        leader = _leader_of(leaders, topic, message.partition)
        # A topic without delays would store the header as an ordinary record.
        await self._inspection.delayed_messages(leader, topic, message.partition, 0, {})
        record = NewRecord(None, None, now_ms, ((CANCEL, str(message.offset).encode()),))
        await producer.send(topic, message.partition, record, is_alone=True)

    async def _leaders(self, topic: str) -> list[BrokerId]:
        route = await self._topics.get(topic, fresh=True)
        return [partition.leader for partition in route.partitions]

    async def _list(
        self, leaders: list[BrokerId], topic: str, partition: int, after: PendingMessage | None, limit: int
    ) -> PendingPage:
        start: dict[str, int] = {}
        if after is not None:
            offset = after.offset
            if partition != after.partition:
                offset = _LAST_OFFSET if partition < after.partition else -1
            start = {"after_due_ms": after.due_ms, "after_offset": offset}
        leader = _leader_of(leaders, topic, partition)
        found = await self._inspection.delayed_messages(leader, topic, partition, limit, start)
        messages = [PendingMessage(each["due_ms"], partition, each["offset"]) for each in found["messages"]]
        return PendingPage(found["count"], messages)


def _leader_of(leaders: list[BrokerId], topic: str, partition: int) -> BrokerId:
    if partition >= len(leaders):
        raise BrokerError(
            ErrorCode.unknown_topic_or_partition, f"{topic} has {len(leaders)} partitions, not {partition}"
        )
    if leaders[partition] < 0:
        raise BrokerError(ErrorCode.leader_not_available, f"{topic}-{partition} has no leader at present")
    return leaders[partition]
