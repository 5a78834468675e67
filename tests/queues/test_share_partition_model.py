"""`SharePartition` against a dict of offsets, with random operations and settings."""

from __future__ import annotations

import os
from random import Random

import pytest
from naive_share_partition import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    REJECT,
    RENEW,
    RETURN,
    NaiveRecord,
    NaiveSharePartition,
    Refused,
)

from penstock.config.retry_backoff import RetryBackoff
from penstock.errors import BrokerError
from penstock.queues.acquiring import Span
from penstock.queues.share_partition import SharePartition
from penstock.queues.states import (
    WAITING,
    Acknowledgement,
    AcknowledgeType,
    AcquireMode,
    DeadReason,
    Letters,
    Reason,
    ShareSettings,
    StateBatch,
)

STEPS = 400
SEEDS = int(os.environ.get("SHARE_PARTITION_SEEDS", "60"))
OVERFLOW = Reason(DeadReason.OVERFLOW)
MEMBERS = ("a", "b", "c")


class Comparison:
    """One run: the same operations on both implementations, and a log of random batches."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        start = self.random.choice((0, 1000))
        self.settings = self._draw_settings()
        self.real = SharePartition(start, self.settings)
        self.naive = NaiveSharePartition(start, self.settings)
        self.naive.commit()
        self.now_ms = 1_000
        self.log_end = start
        self.log_start = start
        self.batches: list[Span] = []
        self.store: dict[int, tuple[int, int, int, Reason]] = {}
        self.store_letters: Letters | None = None
        self.durable_letters: Letters | None = None
        """The batch that the share-partition takes for stored."""
        self.dead: dict[tuple[int, int], list[int]] = {}
        """Batches of the dead-letter topic by producer id and sequence: a repeated one is not written."""
        self.producers = 0
        self.store_start = start

    def _draw_settings(self) -> ShareSettings:
        pick = self.random.choice
        return ShareSettings(
            lock_ms=pick((1, 50, 400)),
            delivery_limit=pick((2, 3, 5, 10)),
            max_locks=pick((3, 10, 60)),
            max_ranges=pick((4, 12, 1000)),
            may_renew=pick((True, True, False)),
            backoff=RetryBackoff(pick(((), (7,), (0, 30, 200)))),
            has_dead_letters=pick((True, False)),
            max_archiving=pick((2, 1_000)),
        )

    def step(self) -> None:
        operations = (
            *[self.append] * 3,
            *[self.acquire] * 5,
            *[self.acknowledge] * 6,
            self.acknowledge_badly,
            self.pass_time,
            self.close_member,
            self.move_log_start,
            self.write,
            self.fail_write,
            self.crash,
            self.change_settings,
            self.give_up,
            *[self.write_letters] * 2,
        )
        self.random.choice(operations)()
        self.check()

    # --- operations

    def append(self) -> None:
        if self.log_end - self.naive.start < 300:
            size = self.random.choice((1, 1, 2, 7, 20))
            hidden = self.random.random() < 0.15
            self.batches.append(Span(self.log_end, self.log_end + size - 1, hidden))
            self.log_end += size

    def acquire(self) -> None:
        self.real.expire(self.now_ms)
        self.naive.expire(self.now_ms)
        below = self.random.choice((self.log_end, self.log_end - 3))
        span = self.real.next_span(below)
        assert span == self.naive.next_span(below, len(self.real._ranges))
        if span is None:
            return
        spans = [
            Span(max(each.first, span[0]), min(each.last, span[1]), each.is_hidden)
            for each in self.batches
            if each.last >= span[0] and each.first <= span[1]
        ]
        member = self.random.choice(MEMBERS)
        max_records, batch_size = self.random.choice((1, 2, 10, 500)), self.random.choice((1, 5, 100))
        mode = self.random.choice(tuple(AcquireMode))
        got = self.real.acquire(member, spans, max_records, batch_size, mode, self.now_ms)
        expected = self.naive.acquire(member, spans, max_records, batch_size, mode, self.now_ms)
        assert [tuple(each) for each in got] == expected

    def give_up(self) -> None:
        """Give up records that no member holds, the oldest or some in the middle."""
        first = max(self.naive.start, self.log_start) + self.random.choice((0, 0, 3, 40))
        last = min(first + self.random.choice((0, 5, 200)), self.log_end - 1)
        spans = [
            Span(max(each.first, first), min(each.last, last), each.is_hidden)
            for each in self.batches
            if each.last >= first and each.first <= last
        ]
        max_records = self.random.choice((1, 4, 100))
        got = self.real.give_up(spans, first, last, max_records, OVERFLOW)
        assert got[0] == self.naive.give_up(spans, max_records, got[1])

    def acknowledge(self) -> None:
        member = self.random.choice(MEMBERS)
        held = sorted(o for o in self.naive.with_state(ACQUIRED) if self.naive.records[o].member == member)
        if held:
            first = self.random.choice(held)
            last = first
            while last + 1 in held and self.random.random() < 0.9:
                last += 1
            length = last - first + 1
            kinds = self.random.choice((RENEW + 1, RETURN + 1))
            types = bytes(self.random.randrange(kinds) for _ in range(self.random.choice((1, length))))
            asked = [Acknowledgement(first, last, types)]
            later = [each for each in held if each > last + 1]
            if later and self.random.random() < 0.4:
                asked.append(Acknowledgement(later[0], later[0], bytes([self.random.randrange(kinds)])))
            self._acknowledge(member, asked)

    def acknowledge_badly(self) -> None:
        first = self.naive.start + self.random.randrange(-5, 60)
        last = first + self.random.randrange(-2, 20)
        types = bytes(
            self.random.randrange(8) for _ in range(self.random.choice((0, 1, 2, abs(last - first) + 1)))
        )
        self._acknowledge(self.random.choice(MEMBERS), [Acknowledgement(first, last, types)])

    def _acknowledge(self, member: str, asked: list[Acknowledgement]) -> None:
        newest = AcknowledgeType(self.random.choice((REJECT, RENEW, RETURN)))
        delay_ms = self.random.choice((None, None, 0, 20, 150))
        try:
            self.naive.acknowledge(member, asked, newest, self.now_ms, delay_ms)
        except Refused:
            with pytest.raises(BrokerError):
                self.real.acknowledge(member, asked, self.now_ms, newest, delay_ms)
        else:
            self.real.acknowledge(member, asked, self.now_ms, newest, delay_ms)

    def pass_time(self) -> None:
        self.now_ms += self.random.choice((1, 10, 100, 500))
        self.real.expire(self.now_ms)
        self.naive.expire(self.now_ms)

    def close_member(self) -> None:
        member = self.random.choice(MEMBERS)
        is_lost = self.random.random() < 0.5
        self.real.release_member(member, self.now_ms, is_lost=is_lost)
        self.naive.release_member(member, self.now_ms, is_lost)

    def move_log_start(self) -> None:
        if self.random.random() < 0.3:
            self.log_start = min(
                self.log_end, max(self.log_start, self.naive.start) + self.random.randrange(30)
            )
            self.batches = [each for each in self.batches if each.last >= self.log_start]
            self.real.on_log_start(self.log_start)
            self.naive.on_log_start(self.log_start)

    def change_settings(self) -> None:
        if self.random.random() < 0.2:
            self.settings = self._draw_settings()
            self.real.settings = self.naive.settings = self.settings

    def write_letters(self) -> None:
        """Choose a batch of dead letters, or write the one that is stored, perhaps without learning of it."""
        letters = self.real.letters
        if letters is None or not letters.ranges:
            if letters is None:
                self.producers += 1
            known = letters or Letters(self.producers, 0)
            count = self.random.choice((1, 3, 50))
            begun = self.real.begin_letters(known.producer_id, known.sequence, count)
            waiting = self.naive.with_state(ARCHIVING)
            assert (begun is None) == (not waiting)
            if begun is not None:
                assert begun.records == min(count, len(waiting))
                assert set(offsets_of(begun)) <= set(waiting)
        elif letters.records > 1 and letters[:2] not in self.dead and self.random.random() < 0.2:
            self.real.shorten_letters()  # only a batch that is certainly not written
        elif letters is self.durable_letters:
            place = letters.producer_id, letters.sequence
            assert self.dead.setdefault(place, offsets_of(letters)) == offsets_of(letters)
            if self.random.random() < 0.7:
                self.real.finish_letters()
                for offset in offsets_of(letters):
                    if offset in self.naive.records:
                        self.naive.records[offset].state = ARCHIVED
                self.naive.move_start()

    # --- durability

    def write(self) -> None:
        update = self.real.take_update()
        assert update.start_offset == self.naive.start
        settled = sum(1 for record in self.naive.records.values() if record.is_settled)
        assert update.delivery_complete_count == settled
        end = update.start_offset
        self.durable_letters = self.real.letters
        if update.letters is not None:
            self.store_letters = update.letters
        for first, last, state, count, ready_ms, reason, _ in update.batches:
            assert end <= first <= last
            end = last + 1
            for offset in range(first, last + 1):
                self.store[offset] = (state, count, ready_ms, reason)
        self.store_start = update.start_offset
        self.store = {offset: each for offset, each in self.store.items() if offset >= self.store_start}
        self.naive.commit()
        for offset, (state, count, ready_ms) in self.naive.stored.items():
            stored = self.store.get(offset, (AVAILABLE, 0, 0, Reason()))
            is_settled = state not in (AVAILABLE, ARCHIVING)
            assert (stored[0] not in (AVAILABLE, ARCHIVING)) == is_settled
            assert (stored[0] == ARCHIVING) == (state == ARCHIVING) == (stored[3].code != 0)
            assert is_settled or stored[1] == count
            assert is_settled or not ready_ms or stored[2] == ready_ms
            assert is_settled or ready_ms or stored[2] <= self.now_ms
        assert not self.real.has_changes

    def fail_write(self) -> None:
        """Have a write fail; the changes must be in the next one."""
        self.real.restore_changes(self.real.take_update())

    def crash(self) -> None:
        """Lose everything that was not written, as with a new leader."""
        if self.random.random() < 0.7:
            return
        self.real = SharePartition(
            self.store_start,
            self.settings,
            [StateBatch(offset, offset, *stored) for offset, stored in self.store.items()],
            self.store_letters,
        )
        self.durable_letters = self.real.letters
        stored = self.naive.stored
        naive = NaiveSharePartition(self.naive.stored_start, self.settings)
        known = [o for o, (state, count, _) in stored.items() if state != AVAILABLE or count]
        naive.end = max(known, default=naive.start - 1) + 1
        for offset in range(naive.start, naive.end):
            state, count, ready_ms = stored.get(offset, (int(AVAILABLE), 0, 0))
            naive.records[offset] = NaiveRecord(WAITING if ready_ms else state, count, "", ready_ms)
        naive.move_start()
        self.naive = naive
        self.naive.commit()
        self.real.on_log_start(self.log_start)
        self.naive.on_log_start(self.log_start)
        self.real.expire(self.now_ms)
        self.naive.expire(self.now_ms)

    # --- comparison

    def check(self) -> None:
        real, naive = self.real, self.naive
        assert (real.start_offset, real.end_offset) == (naive.start, naive.end)
        assert real.acquired == len(naive.with_state(ACQUIRED))
        assert real.available == len(naive.with_state(AVAILABLE))
        assert real.waiting == len(naive.with_state(WAITING))
        assert real.archiving == len(naive.with_state(ARCHIVING))
        written = [offset for batch in self.dead.values() for offset in batch]
        assert len(written) == len(set(written)), "a record has two dead letters"
        expected_offset = real.start_offset
        for place, each in enumerate(real._ranges.all):
            assert each.first == expected_offset <= each.last
            expected_offset = each.last + 1
            if place:
                before = real._ranges.all[place - 1]
                assert not (before.is_settled and each.is_settled)
            for offset in range(each.first, each.last + 1):
                record = naive.records[offset]
                assert each.is_settled == record.is_settled
                if not record.is_settled:
                    assert (each.state, each.delivery_count) == (record.state, record.count)
                if record.state in (ACQUIRED, WAITING):
                    assert (each.member, each.deadline_ms) == (record.member, record.deadline_ms)
        assert expected_offset == real.end_offset
        for member in MEMBERS:
            held = sum(1 for o in naive.with_state(ACQUIRED) if naive.records[o].member == member)
            assert real.held_by(member) == held


def offsets_of(letters: Letters) -> list[int]:
    return [offset for first, last in letters.ranges for offset in range(first, last + 1)]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_share_partition_equals_a_dict_of_offsets(seed: int) -> None:
    comparison = Comparison(seed)
    for _ in range(STEPS):
        comparison.step()
