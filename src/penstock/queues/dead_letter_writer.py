"""Writes the dead letters of a share-partition, one batch at a time and each record once.

First the batch is stored in the state of the share-partition, with producer id and sequence number; then it is sent
until it is written. A new leader sends it again with the same sequence number, so that it is stored once in the topic.
After that its records are archived. While the topic cannot be written, these records wait and the group continues with
others. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final, Protocol

from penstock.errors import BrokerError, ErrorCode
from penstock.model import Offset, ShareKey
from penstock.queues.dead_letter_record import Origin, dead_letter
from penstock.queues.leader_context import LeaderContext
from penstock.queues.share_partition import SharePartition
from penstock.queues.share_settings import GroupShareSettings
from penstock.queues.state_writer import Stored
from penstock.queues.states import Letters
from penstock.records.building import NewRecord
from penstock.records.iteration import Record, iterate, read_batches
from penstock.replication.replica import Replica
from penstock.state_log.intents import OTHER_HISTORY, carry_out
from penstock.storage.log import Log

MAX_LETTERS: Final = 500
"""Maximum number of dead letters in a batch."""
_READ_BYTES: Final = 1 << 20
_TOO_LARGE = (ErrorCode.message_too_large, ErrorCode.record_list_too_large)


class LetterSource(Protocol):
    """The part of `ShareLeader` that the writer uses."""

    key: ShareKey
    replica: Replica
    settings: GroupShareSettings

    @property
    def partition(self) -> SharePartition | None: ...

    def store(self, stored: Stored | None) -> None: ...

    def wake(self) -> None: ...


class DeadLetterWriter:
    def __init__(self, owner: LetterSource, context: LeaderContext) -> None:
        self.problem = ""
        """Reason why dead letters cannot be written; empty if they can."""
        self.written: dict[int, int] = {}
        """Number of dead letters by reason."""
        self._unwritten: Letters | None = None
        """Batch in progress if it was certainly not written to the topic, so that it may be changed; else None."""
        self._owner = owner
        self._context = context
        self._sink = context.letters
        self._task: asyncio.Task[None] | None = None
        self._writes_for: SharePartition | None = None
        """Share-partition state to which the batch in progress belongs."""

    def wake(self) -> None:
        """Start to write waiting dead letters, unless the writer is running."""
        partition = self._owner.partition
        if self._task is None and partition is not None and (partition.archiving or _is_begun(partition)):
            self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            await carry_out(self._step, self._on_error)
        except Exception as error:  # noqa: BLE001 - the share-partition continues without dead letters
            self.problem = str(error)
            self._context.logger.error(
                "dead letters could not be written", error, share_partition=self._owner.key.name
            )
        finally:
            self._task = None

    async def _step(self) -> bool:
        partition = self._writes_for = self._owner.partition
        if partition is None or not await self._write_batch(partition):
            return False
        self.problem = ""
        return True

    async def _on_error(self, error: Exception) -> bool:
        partition = self._writes_for  # not the owner's, which may have loaded its state again
        if partition is not None and await self._resolve(partition, error):
            return True
        self._report(error)
        return False

    async def _write_batch(self, partition: SharePartition) -> bool:
        """Write one batch; True if there was one."""
        if not _is_begun(partition):
            known = partition.letters or Letters(await self._sink.producer_id(), 0)
            if partition is not self._owner.partition:
                return False
            self._unwritten = partition.begin_letters(known.producer_id, known.sequence, MAX_LETTERS)
            if self._unwritten is None:
                return False
        letters = partition.letters
        assert letters is not None
        topic = self._owner.settings.dead_letter_topic
        if topic:
            await self._stored()
            records = await self._letters_of(
                partition, letters, is_copied=self._owner.settings.copies_records
            )
            await self._send(topic, letters, records)
        if partition is not self._owner.partition:
            return False
        self._count(partition, letters)
        partition.finish_letters()
        self._owner.store(None)
        self._owner.wake()
        return True

    async def _send(self, topic: str, letters: Letters, records: list[NewRecord]) -> None:
        key = self._owner.key
        source = Origin(key.group_id, self._owner.replica.name.topic, key.partition, letters.ranges[0][0])
        unwritten, self._unwritten = self._unwritten, None
        try:
            await self._sink.write(topic, source, records, letters.producer_id, letters.sequence)
        except BrokerError as error:
            if error.code in _TOO_LARGE:
                self._unwritten = unwritten
            if error.code not in _TOO_LARGE or len(records) > 1:
                raise
            # A single dead letter is too large for the topic: it is written with only Penstock's and Kafka's headers.
            bare = [NewRecord(None, None, each.timestamp, _own_headers(each)) for each in records]
            await self._sink.write(topic, source, bare, letters.producer_id, letters.sequence)

    async def _stored(self) -> None:
        """Wait until the state of the share-partition is stored."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_stored(error: BrokerError | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self._owner.store(on_stored)
        await done

    async def _resolve(self, partition: SharePartition, error: Exception) -> bool:
        """Change the batch after an error so that it can be written; False if that is not possible."""
        letters = partition.letters
        if not isinstance(error, BrokerError) or letters is None or not letters.ranges:
            return False
        if error.code in OTHER_HISTORY:
            partition.renumber_letters(await self._sink.producer_id())
            return True
        if error.code in _TOO_LARGE and letters is self._unwritten and letters.records > 1:
            partition.shorten_letters()
            self._unwritten = partition.letters
            return True
        return False

    def _report(self, error: Exception) -> None:
        if not self.problem:
            self._context.logger.warning(
                "dead letters cannot be written",
                share_partition=self._owner.key.name,
                topic=self._owner.settings.dead_letter_topic,
                error=str(error),
            )
        self.problem = str(error)

    def _count(self, partition: SharePartition, letters: Letters) -> None:
        for first, last in letters.ranges:
            for offset in range(first, last + 1):
                code = partition.letter_of(offset)[1].code
                self.written[code] = self.written.get(code, 0) + 1

    # --- records

    async def _letters_of(
        self, partition: SharePartition, letters: Letters, *, is_copied: bool
    ) -> list[NewRecord]:
        """The dead letters of a batch, in the order of its ranges: one for each offset, even if it has no record."""
        log, ranges = self._owner.replica.log, letters.ranges
        found: dict[int, Record] = {}
        if is_copied:
            found = await self._context.threads.run("read", lambda: _read_records(log, ranges))
        key, topic, now_ms = self._owner.key, self._owner.replica.name.topic, self._context.wall_ms()
        made = []
        for offset in _offsets(ranges):
            count, reason = partition.letter_of(offset)
            origin = Origin(key.group_id, topic, key.partition, offset)
            made.append(dead_letter(origin, found.get(offset), count, reason, now_ms, is_copied=is_copied))
        return made


def _is_begun(partition: SharePartition) -> bool:
    return partition.letters is not None and bool(partition.letters.ranges)


def _own_headers(letter: NewRecord) -> tuple[tuple[str, bytes | None], ...]:
    return tuple(each for each in letter.headers if each[0].startswith(("__dlq.errors.", "penstock-dead-")))


def _offsets(ranges: tuple[tuple[int, int], ...]) -> Iterator[int]:
    for first, last in ranges:
        yield from range(first, last + 1)


def _read_records(log: Log, ranges: tuple[tuple[int, int], ...]) -> dict[int, Record]:
    """Read the records of some offsets in a thread pool. Records that do not exist any more are left out."""
    wanted = set(_offsets(ranges))
    found: dict[int, Record] = {}
    offset = min(wanted)
    while wanted and offset < log.high_watermark:
        offset = max(offset, log.log_start_offset)
        part = log.read(
            Offset(offset), _READ_BYTES, below=log.high_watermark, at_least_one=True, wait=True
        ).read()
        behind = offset
        for header, batch in read_batches(memoryview(part)):
            behind = header.next_offset
            if any(header.base_offset <= each <= header.last_offset for each in wanted):
                for record in iterate(batch, header):
                    if record.offset in wanted:
                        found[record.offset] = record
        wanted = {each for each in wanted if each >= behind}
        if behind <= offset:
            break
        offset = max(behind, min(wanted, default=behind))
    return found
