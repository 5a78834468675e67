"""Reading a shard from its log: read and decoded in a pool, part by part, and applied on the loop a little at a time.

Everything up to the end of the log counts, as soon as it is committed: on one broker that is what survived recovery,
and after a refused append what is still being flushed. A record that cannot be understood is passed over and counted, a
damaged stretch of the log too: it costs the commits in it, not all the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from penstock.cluster.image import ClusterImage
from penstock.errors import BrokerError, CorruptLog, InvalidBatch
from penstock.groups.classic_group import ClassicGroup
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.offsets import Offsets
from penstock.groups.record_codec import UnknownRecord, decode_record
from penstock.groups.records import (
    ClassicGroupKey,
    ClassicGroupValue,
    ConsumerGroupKey,
    GroupRecord,
    OffsetKey,
    OffsetValue,
)
from penstock.groups.settings import GroupSettings
from penstock.groups.surroundings import ShardState, Surroundings
from penstock.model import Offset
from penstock.records.batch import HEADER_SIZE, BatchHeader
from penstock.records.compression import MAX_DECOMPRESSED_BYTES, decompress
from penstock.records.iteration import read_batches, walk
from penstock.replication.replica import Replica
from penstock.storage.log import AppendInfo, Log
from penstock.threads import Threads

PART_BYTES = 1_048_576
RECORDS_PER_TURN = 500
GROUPS_PER_TURN = 50


@dataclass(slots=True)
class LogPart:
    """What one read of the log brought."""

    next_offset: Offset
    records: list[GroupRecord] = field(default_factory=list)
    unknown: int = 0
    """Records that were passed over."""
    is_damaged: bool = False


class Loading:
    """One pass over one log."""

    def __init__(self, replica: Replica, threads: Threads, surroundings: Surroundings) -> None:
        self._replica = replica
        self._threads = threads
        self._around = surroundings
        self._offsets = Offsets()
        self._classic: dict[str, ClassicGroupValue] = {}
        self._consumer: dict[str, ConsumerGroup] = {}
        self.unknown = 0
        self.damaged_parts = 0

    async def run(self) -> ShardState:
        """BrokerError or StorageError when the log cannot be read."""
        log = self._replica.log
        offset, end_offset = log.log_start_offset, log.log_end_offset
        await self._committed(end_offset)
        while offset < end_offset:
            part = await self._threads.run("read", partial(read_part, log, offset, end_offset))
            self.unknown += part.unknown
            self.damaged_parts += part.is_damaged
            await self._apply(part.records)
            offset = part.next_offset
        return await self._finish()

    async def _committed(self, end_offset: Offset) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: BrokerError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        last = AppendInfo(Offset(0), Offset(end_offset - 1), -1, Offset(0))
        if not self._replica.when_committed(last, done):
            await future

    async def _apply(self, records: Sequence[GroupRecord]) -> None:
        for start in range(0, len(records), RECORDS_PER_TURN):
            for record in records[start : start + RECORDS_PER_TURN]:
                self._replay(record)
            await asyncio.sleep(0)

    def _replay(self, record: GroupRecord) -> None:
        key, value = record.key, record.value
        if isinstance(key, OffsetKey):
            self._offsets.apply(key, cast("OffsetValue | None", value))
        elif isinstance(key, ClassicGroupKey):
            self._classic.pop(key.group_id, None)
            if value is not None:
                self._consumer.pop(key.group_id, None)
                self._classic[key.group_id] = cast(ClassicGroupValue, value)
        elif isinstance(key, ConsumerGroupKey) and value is None:
            self._consumer.pop(key.group_id, None)
        else:
            self._replay_consumer(key.group_id, record)

    def _replay_consumer(self, group_id: str, record: GroupRecord) -> None:
        group = self._consumer.get(group_id)
        if group is None:
            if record.value is None:
                return
            self._classic.pop(group_id, None)
            group = self._consumer[group_id] = ConsumerGroup(
                group_id, self._around.settings, self._around.wall_ms
            )
        group.apply(record)

    async def _finish(self) -> ShardState:
        """Groups as they are from now on; one that only has offsets is an empty classic one."""
        state = ShardState(offsets=self._offsets)
        around = self._around
        names = {**self._classic, **self._consumer, **dict.fromkeys(self._offsets.groups())}
        for place, group_id in enumerate(names):
            if place % GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)
            state.groups[group_id] = self._make(group_id, around.settings, around.image)
        return state

    def _make(
        self, group_id: str, settings: GroupSettings, image: ClusterImage
    ) -> ClassicGroup | ConsumerGroup:
        now_ms, wall_ms = self._around.timers.now_ms(), self._around.wall_ms
        consumer = self._consumer.get(group_id)
        if consumer is not None:
            consumer.loaded(image, now_ms)
            return consumer
        value = self._classic.get(group_id)
        if value is None:
            return ClassicGroup(group_id, settings, wall_ms)
        return ClassicGroup.restore(group_id, value, settings, wall_ms, now_ms)


def read_part(log: Log, offset: Offset, end_offset: Offset) -> LogPart:
    """Read on from `offset`. Of several records of a key only the newest is decoded. Waits for the disk."""
    part = LogPart(offset)
    newest: dict[bytes, bytes | None] = {}
    try:
        content = log.read(offset, PART_BYTES, below=end_offset, at_least_one=True, wait=True).read()
        if not content:
            part.next_offset = end_offset  # compaction left nothing there
        for header, batch in read_batches(memoryview(content)):
            part.next_offset = header.next_offset
            try:
                part.unknown += _collect(batch, header, newest)
            except InvalidBatch:
                part.is_damaged = True
    except (CorruptLog, InvalidBatch):
        part.is_damaged = True
        part.next_offset = _behind_damage(log, part.next_offset, end_offset)
    for key, value in newest.items():
        try:
            part.records.append(decode_record(key, value))
        except UnknownRecord:
            part.unknown += 1
    return part


def _collect(batch: memoryview, header: BatchHeader, newest: dict[bytes, bytes | None]) -> int:
    """Put the records of a batch over those of earlier ones; how many have no key, as none of ours."""
    if header.is_control:
        return 0
    without_key = 0
    body = bytes(decompress(header.codec, batch[HEADER_SIZE:], MAX_DECOMPRESSED_BYTES))
    for _, _, key_start, key_length, start, length, _ in walk(body, header.record_count):
        if key_length < 0:
            without_key += 1
            continue
        key = body[key_start : key_start + key_length]
        newest.pop(key, None)  # so that it takes its place in the order of the log
        newest[key] = None if length < 0 else body[start : start + length]
    return without_key


def _behind_damage(log: Log, offset: Offset, end_offset: Offset) -> Offset:
    """The first offset above the damage at `offset` that can be read again."""
    step = 1
    while offset + step < end_offset and not _is_readable(log, Offset(offset + step), end_offset):
        step *= 2
    bad, good = offset + step // 2, min(offset + step, end_offset)
    while good - bad > 1:
        middle = (good + bad) // 2
        if _is_readable(log, Offset(middle), end_offset):
            good = middle
        else:
            bad = middle
    return Offset(good)


def _is_readable(log: Log, offset: Offset, end_offset: Offset) -> bool:
    try:
        content = log.read(offset, 1, below=end_offset, at_least_one=True, wait=True).read()
        return any(header.next_offset > offset for header, _ in read_batches(memoryview(content)))
    except (CorruptLog, InvalidBatch):
        return False
