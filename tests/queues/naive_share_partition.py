"""A share-partition as a dict of offsets: slow and plain, to compare `SharePartition` with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.queues.acquiring import Span
from penstock.queues.states import WAITING, Acknowledgement, AcquireMode, RecordState, ShareSettings

AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED
ARCHIVING = RecordState.ARCHIVING
GAP, ACCEPT, RELEASE, REJECT, RENEW, EXPIRE, RETURN = range(7)


class Refused(Exception):
    """An acknowledgement that must have no effect."""


@dataclass
class NaiveRecord:
    state: int
    count: int = 0
    member: str = ""
    deadline_ms: int = 0

    @property
    def is_settled(self) -> bool:
        return self.state in (ACKNOWLEDGED, ARCHIVED)


class NaiveSharePartition:
    def __init__(self, start: int, settings: ShareSettings) -> None:
        self.start, self.end, self.settings = start, start, settings
        self.records: dict[int, NaiveRecord] = {}
        self.stored: dict[int, tuple[int, int, int]] = {}
        """Committed state of each offset: its state, its delivery count and its time."""

    def move_start(self) -> None:
        while self.start < self.end and self.records[self.start].is_settled:
            del self.records[self.start]
            self.start += 1

    def with_state(self, *states: int) -> list[int]:
        return [offset for offset, record in self.records.items() if record.state in states]

    # --- operations

    @property
    def _dead(self) -> int:
        return ARCHIVING if self.settings.has_dead_letters else ARCHIVED

    def next_span(self, below: int, ranges: int) -> tuple[int, int] | None:
        if len(self.with_state(ACQUIRED)) >= self.settings.max_locks:
            return None
        if len(self.with_state(ARCHIVING)) >= self.settings.max_archiving:
            return None
        free = sorted(self.with_state(AVAILABLE))
        if free:
            if free[0] >= below:
                return None
            last = free[0]
            while self._is_like(last + 1, free[0]):
                last += 1
            return free[0], min(last, below - 1)
        if self.end < below and ranges < self.settings.max_ranges:
            return self.end, below - 1
        return None

    def _is_like(self, offset: int, other: int) -> bool:
        found = self.records.get(offset)
        return found is not None and found.state is AVAILABLE and found.count == self.records[other].count

    def acquire(
        self,
        member: str,
        spans: Iterable[Span],
        max_records: int,
        batch_size: int,
        mode: AcquireMode,
        now_ms: int,
    ) -> list[tuple[int, int, int]]:
        taking = _Taking(self, max_records, mode == AcquireMode.RECORD_LIMIT)
        for span in spans:
            is_first = True
            taking.hidden |= set(range(span.first, span.last + 1)) if span.is_hidden else set()
            for offset in range(max(span.first, self.start), span.last + 1):
                is_new = offset not in self.records
                if is_new:
                    self.records[offset] = NaiveRecord(AVAILABLE)
                    self.end = offset + 1
                record = self.records[offset]
                if record.state is not AVAILABLE:
                    continue
                if span.is_hidden or record.count >= self.settings.delivery_limit:
                    record.state = ARCHIVED if span.is_hidden else self._dead
                elif not taking.take(offset, record.count, is_first):
                    if is_new:
                        del self.records[offset]
                        self.end = offset
                    break
                else:
                    is_first = False
                if taking.is_done:
                    break
            if taking.is_done or len(taking.taken) >= max_records:
                break
        answer = self._divide(taking.taken, taking.starts, batch_size, taking.is_exact)
        for offset in taking.taken:
            deadline_ms = now_ms + self.settings.lock_ms
            self.records[offset] = NaiveRecord(ACQUIRED, self.records[offset].count + 1, member, deadline_ms)
        self.move_start()
        return answer

    def size_around(self, offset: int) -> int:
        first = last = offset
        while self._is_like(first - 1, offset):
            first -= 1
        while self._is_like(last + 1, offset):
            last += 1
        return last - first + 1

    def follows(self, taken: list[int], offset: int, count: int) -> bool:
        return taken[-1] == offset - 1 and self.records[taken[-1]].count == count

    def _divide(
        self, taken: list[int], starts: set[int], batch_size: int, exact: bool
    ) -> list[tuple[int, int, int]]:
        """Ranges of the answer: contiguous, of one count, and cut where a batch begins."""
        pieces: list[list[int]] = []
        for offset in taken:
            if (
                pieces
                and self.follows(pieces[-1], offset, self.records[offset].count)
                and (exact or offset not in starts)
            ):
                pieces[-1].append(offset)
            else:
                pieces.append([offset])
        merged: list[list[int]] = []
        for piece in pieces:
            if (
                merged
                and merged[-1][-1] + 1 == piece[0]
                and self.records[merged[-1][-1]].count == self.records[piece[0]].count
                and len(merged[-1]) + len(piece) <= max(1, batch_size)
            ):
                merged[-1] += piece
            else:
                merged.append(list(piece))
        return [(each[0], each[-1], self.records[each[0]].count + 1) for each in merged]

    def acknowledge(
        self,
        member: str,
        asked: Sequence[Acknowledgement],
        newest: int,
        now_ms: int,
        delay_ms: int | None = None,
    ) -> None:
        before = -1
        for first, last, types in asked:
            if not before < first <= last or len(types) not in (1, last - first + 1) or not types:
                raise Refused
            if max(types) > newest:
                raise Refused
            before = last
        self.expire(now_ms)
        decisions: list[tuple[int, int]] = []
        for first, last, types in asked:
            if last >= self.end:
                raise Refused
            for offset in range(first, last + 1):
                kind = types[0] if len(types) == 1 else types[offset - first]
                decisions.append((offset, kind))
        held = {o for o in self.with_state(ACQUIRED) if self.records[o].member == member}
        if any(offset >= self.start and offset not in held for offset, _ in decisions):
            raise Refused
        if not self.settings.may_renew and any(RENEW in types for _, _, types in asked):
            raise Refused
        for offset, kind in decisions:
            if offset >= self.start:
                self._decide(self.records[offset], kind, now_ms, delay_ms)
        self.move_start()

    def _decide(self, record: NaiveRecord, kind: int, now_ms: int, delay_ms: int | None) -> None:
        if kind == ACCEPT:
            record.state = ACKNOWLEDGED
        elif kind == GAP:
            record.state = ARCHIVED
        elif kind == REJECT:
            record.state = self._dead
        elif kind == RELEASE:
            self._free(record, now_ms, delay_ms)
        elif kind == EXPIRE:
            record.state, record.count = self._dead, record.count - 1
        elif kind == RETURN:
            record.state, record.count, record.member = AVAILABLE, record.count - 1, ""
        else:
            record.deadline_ms = now_ms + (self.settings.lock_ms if delay_ms is None else delay_ms)

    def _free(self, record: NaiveRecord, now_ms: int, delay_ms: int | None = None) -> None:
        record.member = ""
        if delay_ms is None:
            delay_ms = self.settings.backoff.delay_ms(record.count, 0)
        if record.count >= self.settings.delivery_limit:
            record.state = self._dead
        elif delay_ms:
            record.state, record.deadline_ms = WAITING, now_ms + delay_ms
        else:
            record.state = AVAILABLE

    def give_up(self, spans: Iterable[Span], max_records: int, behind: int) -> int:
        """Archive all records of spans that no member holds, below an offset; returns their number."""
        count = 0
        for span in spans:
            for offset in range(max(span.first, self.start), min(span.last + 1, behind)):
                for new in range(self.end, offset + 1):
                    self.records[new] = NaiveRecord(AVAILABLE)
                    self.end = new + 1
                record = self.records[offset]
                if record.state in (AVAILABLE, WAITING):
                    record.state = ARCHIVED if span.is_hidden else self._dead
                    count += 1
        assert count <= max_records
        self.move_start()
        return count

    def expire(self, now_ms: int) -> None:
        for offset in self.with_state(ACQUIRED, WAITING):
            record = self.records[offset]
            if record.deadline_ms <= now_ms:
                if record.state == WAITING:
                    record.state = AVAILABLE
                else:
                    self._free(record, now_ms)
        self.move_start()

    def release_member(self, member: str, now_ms: int, is_lost: bool) -> None:
        for offset in self.with_state(ACQUIRED):
            if self.records[offset].member == member:
                self._free(self.records[offset], now_ms, None if is_lost else 0)
        self.move_start()

    def on_log_start(self, offset: int) -> None:
        if offset <= self.start:
            return
        for gone in [each for each in self.records if each < offset]:
            del self.records[gone]
        self.start, self.end = offset, max(self.end, offset)
        self.move_start()

    def commit(self) -> None:
        """Make the present state durable, as a write to the share coordinator does."""
        self.stored = {
            offset: (
                AVAILABLE if record.state in (ACQUIRED, WAITING) else record.state,
                record.count - (record.state is ACQUIRED),
                record.deadline_ms if record.state == WAITING else 0,
            )
            for offset, record in self.records.items()
        }
        self.stored_start = self.start


class _Taking:
    """The records that one acquisition takes, decided offset by offset."""

    def __init__(self, owner: NaiveSharePartition, max_records: int, is_exact: bool) -> None:
        self.taken: list[int] = []
        self.starts: set[int] = set()
        self.hidden: set[int] = set()
        """Offsets without a record for the group."""
        self.is_exact = is_exact
        self.is_done = False
        self._owner = owner
        self._limit = owner.settings.delivery_limit
        self._room = owner.settings.max_locks - len(owner.with_state(ACQUIRED))
        self._max_records = max_records
        self._sizes = {offset: owner.size_around(offset) for offset in owner.with_state(AVAILABLE)}
        self._company: int | None = None

    def take(self, offset: int, count: int, begins_batch: bool) -> bool:
        careful_from = max(2, -(-self._limit // 2))
        careful = self._limit > 2 and count >= careful_from
        self.is_done = (
            (careful and bool(self.taken) and self._company is None)
            or (self._company is not None and (not careful or len(self.taken) >= self._company))
            or len(self.taken) >= self._room
            or (self.is_exact and len(self.taken) >= self._max_records)
            or (self.is_exact and bool(self.taken) and not self._follows(offset, count))
        )
        if self.is_done:
            return False
        if careful and self._company is None:
            is_last = count >= self._limit - 1
            self._company = 1 if is_last else max(1, self._sizes[offset] >> (count - careful_from + 1))
        if begins_batch:
            self.starts.add(offset)
        self.taken.append(offset)
        self.is_done = self._company is not None and len(self.taken) >= self._company
        return True

    def _follows(self, offset: int, count: int) -> bool:
        """Whether only hidden offsets lie between the last record that was taken and this one, of the same count."""
        between = set(range(self.taken[-1] + 1, offset))
        return between <= self.hidden and self._owner.records[self.taken[-1]].count == count
