"""The states of the share-partitions of one partition of `__share_group_state`, while this broker leads it.

A request changes the state at once; its response is sent when its record is committed. Leader epochs fence former
leaders: a read records the leader epoch of the reader, after which writes of older leaders are refused. State epochs
fence leaders that loaded the state before an administrator reset it. If the log refuses a record, the shard closes and
is loaded again. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from penstock.config import SHARE_UPDATES_PER_SNAPSHOT, SHARE_WRITE_TIMEOUT_MS, BrokerConfig
from penstock.errors import BrokerError, ErrorCode
from penstock.model import Offset, ShareKey
from penstock.queues.records import SnapshotValue, StateRecord, UpdateValue
from penstock.queues.states import Letters, StateBatch, StateUpdate
from penstock.queues.stored_state import StoredState
from penstock.state_log.appender import Appender, Done
from penstock.state_log.shard import CallWaiter, Shard, ShardContext, Waiter, ignore_outcome

NO_START_OFFSET = -1
_MANY_RECORDS = 1_000
"""A share-partition without recent writes gets a new snapshot if at least this many records follow its last one."""


_RANGES_PER_UPDATE = 20


class ShareStateContext(ShardContext, Protocol):
    @property
    def config(self) -> BrokerConfig: ...

    def wall_ms(self) -> int: ...


class ReadState(NamedTuple):
    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    letters: Letters | None = None


class StateSummary(NamedTuple):
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int


class ShareStateShard(Shard[StateRecord]):
    def __init__(self, partition: int, appender: Appender[StateRecord], context: ShareStateContext) -> None:
        super().__init__(partition, appender, context)
        self._context = context
        self._is_live = False
        self._states: dict[ShareKey, StoredState] = {}

    def __len__(self) -> int:
        return len(self._states)

    def start_offsets(self) -> Iterator[tuple[ShareKey, int]]:
        """Start offsets of the share-partitions that have one."""
        for key, state in self._states.items():
            if state.start_offset >= 0:
                yield key, state.start_offset

    def all_start_offsets(self) -> Iterator[tuple[ShareKey, int]]:
        """Start offsets of all share-partitions; -1 if a share-partition has none yet."""
        for key, state in self._states.items():
            yield key, state.start_offset

    def unwritten(self) -> Iterator[ShareKey]:
        """Share-partitions with records whose dead letters are not written yet."""
        for key, state in self._states.items():
            if state.has_unwritten_letters:
                yield key

    # --- requests

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """Create the state, or reset it to a start offset.

        A request without a start offset never resets an existing state: the group coordinator repeats such requests,
        with a newer state epoch if members have joined or left meanwhile, and the state keeps its progress.
        """
        self.check_writable()
        known = self._states.get(key)
        if known is not None and state_epoch < known.state_epoch:
            raise _fenced_state(known, state_epoch)
        if known is not None and (state_epoch == known.state_epoch or start_offset == NO_START_OFFSET):
            await self._committed([])
            return
        now_ms = self._context.wall_ms()
        epochs = (0, -1) if known is None else (known.snapshot_epoch + 1, known.leader_epoch)
        value = SnapshotValue(epochs[0], state_epoch, epochs[1], start_offset, 0, now_ms, now_ms, ())
        await self._change(StateRecord(key, value))

    async def read(self, key: ShareKey, leader_epoch: int) -> ReadState:
        """Return the state for a partition leader. Writes of older leaders are refused from now on."""
        return read_state(await self.read_snapshot(key, leader_epoch))

    async def read_snapshot(self, key: ShareKey, leader_epoch: int) -> SnapshotValue:
        """Return the state as `read` does, but with all stored fields."""
        self.check_writable()
        known = self._existing(key)
        _check_leader(known, leader_epoch)
        update = UpdateValue(known.snapshot_epoch, leader_epoch, NO_START_OFFSET, 0, ())
        committed = self._change(StateRecord(key, update))
        state = known.snapshot(self._context.wall_ms())
        # A record is written even if it changes nothing: its commit proves that this coordinator was not replaced.
        await committed
        return state

    async def store(self, key: ShareKey, state_epoch: int, leader_epoch: int, update: StateUpdate) -> None:
        """Store the changes that the leader of a share-partition has made."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._store(key, state_epoch, leader_epoch, update, future)
        await future

    def store_soon(
        self, key: ShareKey, state_epoch: int, leader_epoch: int, update: StateUpdate, done: Done
    ) -> None:
        """Store changes as `store` does; `done` is called with the outcome. BrokerError if they are refused at once."""
        self._store(key, state_epoch, leader_epoch, update, CallWaiter(done))

    def append_now(self) -> None:
        """Append the records of this turn of the event loop now, without waiting for its end."""
        self._appender.append_collected()

    def _store(
        self, key: ShareKey, state_epoch: int, leader_epoch: int, update: StateUpdate, waiter: Waiter
    ) -> None:
        self.check_writable()
        known = self._existing(key)
        _check_leader(known, leader_epoch)
        if state_epoch != known.state_epoch:
            raise _fenced_state(known, state_epoch)
        value = UpdateValue(
            known.snapshot_epoch,
            leader_epoch,
            update.start_offset,
            update.delivery_complete_count,
            tuple(update.batches),
            update.letters,
        )
        record = StateRecord(key, value)
        self.apply(record)
        self._limit_wait(waiter, self.now_ms() + self._context.config[SHARE_WRITE_TIMEOUT_MS])
        self.write_for(waiter, [record])
        # The cost of a snapshot is proportional to its ranges: with many ranges it is written less often.
        if known.updates >= max(
            self._context.config[SHARE_UPDATES_PER_SNAPSHOT], len(known.ranges) // _RANGES_PER_UPDATE
        ):
            ignore_outcome(self._change(StateRecord(key, known.snapshot(self._context.wall_ms()))))

    async def delete(self, key: ShareKey) -> None:
        """Delete the state; without effect if there is none."""
        self.check_writable()
        await self._committed([StateRecord(key, None)] if key in self._states else [])

    async def summary(self, key: ShareKey) -> StateSummary:
        """Return the offsets and epochs of a share-partition, for administrators."""
        self.check_open()
        known = self._existing(key)
        await self._committed([])
        return StateSummary(
            known.state_epoch, known.leader_epoch, known.start_offset, known.delivery_complete_count
        )

    def _existing(self, key: ShareKey) -> StoredState:
        known = self._states.get(key)
        if known is None:
            raise BrokerError(
                ErrorCode.invalid_request, f"share-partition {key.name[:120]} is not initialised"
            )
        return known

    # --- records

    def apply(self, record: StateRecord) -> None:
        key, value = record
        known = self._states.get(key)
        if value is None:
            self._states.pop(key, None)
        elif isinstance(value, UpdateValue):
            if known is not None:
                known.apply_update(value)
        else:
            # A lower bound of the record's offset: the record will be appended later, or is replayed.
            log_offset = self._log_offset()
            if known is None:
                self._states[key] = StoredState(value, log_offset)
            else:
                known.apply_snapshot(value, log_offset)

    def _log_offset(self) -> int:
        log = self._appender.replica.log
        return log.log_end_offset if self._is_live else log.log_start_offset

    def resume(self) -> None:
        """Start to serve requests, after the log was replayed."""
        self._is_live = True

    def _change(self, record: StateRecord) -> asyncio.Future[None]:
        return self._committed([record])

    def _committed(self, records: list[StateRecord]) -> asyncio.Future[None]:
        for record in records:
            self.apply(record)
        future = self.write(records)
        if not future.done():
            self._limit_wait(future, self.now_ms() + self._context.config[SHARE_WRITE_TIMEOUT_MS])
        return future

    # --- pruning

    async def sweep(self) -> None:
        """Write snapshots of share-partitions without recent writes; move the log start to the oldest needed one."""
        replica = self._appender.replica
        if self._closed is not None or replica.is_under_min_insync or not self._is_live:
            return
        log = replica.log
        if log.log_end_offset - log.log_start_offset > max(_MANY_RECORDS, 4 * len(self._states)):
            self._write_old_snapshots(log.log_end_offset - max(_MANY_RECORDS, 2 * len(self._states)))
        needed = min((state.log_offset for state in self._states.values()), default=log.log_end_offset)
        # No record is deleted before the snapshots that replace it are committed.
        await self.write([])
        offset = min(needed, log.high_watermark)
        if self._closed is None and offset > log.log_start_offset:
            log.advance_log_start(Offset(offset))

    def _write_old_snapshots(self, below: int) -> None:
        now_ms = self._context.wall_ms()
        for key, state in tuple(self._states.items()):
            if state.log_offset < below:
                ignore_outcome(self._change(StateRecord(key, state.snapshot(now_ms))))

    # --- closing

    def _on_deadline(self, name: str) -> None:
        """Do nothing: this shard schedules no deadlines."""

    def _on_close(self, code: ErrorCode) -> None:
        self._states.clear()


def read_state(snapshot: SnapshotValue) -> ReadState:
    """Convert a snapshot to the state that a partition leader needs."""
    return ReadState(snapshot.state_epoch, snapshot.start_offset, snapshot.batches, snapshot.letters)


def _check_leader(known: StoredState, leader_epoch: int) -> None:
    if leader_epoch < known.leader_epoch:
        raise BrokerError(
            ErrorCode.fenced_leader_epoch, f"leader epoch is {known.leader_epoch}, not {leader_epoch}"
        )


def _fenced_state(known: StoredState, state_epoch: int) -> BrokerError:
    return BrokerError(ErrorCode.fenced_state_epoch, f"state epoch is {known.state_epoch}, not {state_epoch}")
