"""Pending messages beside a model of a replicated log: leaders change, uncommitted records are lost, retention deletes.

Every committed message is delivered once and never early, unless it was cancelled or its transaction was aborted.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.delay.events import NO_PRODUCER, Delayed, Ended, Event, Settled
from penstock.delay.pending import PendingMessages

PRODUCERS = st.integers(1, 2)


class PartitionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.log: list[Event | None] = []
        self.start = 0
        self.committed = 0
        self.applied = 0
        self.epoch_start = 0
        self.pending = PendingMessages()
        self.dues: dict[int, int] = {}
        """Due times of all messages in the log or committed once."""
        self.delivered: dict[int, list[int]] = {}
        """Offsets and times of deliveries, by message."""
        self.cancelled: set[int] = set()
        self.acknowledged_cancels: dict[int, int] = {}

    def append(self, event: Event | None) -> int:
        self.log.append(event)
        return len(self.log) - 1

    def apply(self) -> None:
        self.pending.apply(event for event in self.log[self.applied : self.committed] if event is not None)
        self.applied = max(self.applied, self.committed)

    @property
    def is_ready(self) -> bool:
        return self.applied >= self.epoch_start

    # --- clients

    @rule(delay=st.integers(0, 20), producer=st.just(NO_PRODUCER) | PRODUCERS)
    def produce(self, delay: int, producer: int) -> None:
        offset = len(self.log)
        self.dues[offset] = self.now + delay
        self.append(Delayed(offset, self.now + delay, offset, producer))

    @rule(producer=PRODUCERS, is_commit=st.booleans())
    def end_transaction(self, producer: int, is_commit: bool) -> None:
        self.append(Ended(producer, is_commit))

    @rule(place=st.integers(0, 30))
    def cancel(self, place: int) -> None:
        self.apply()
        if self.is_ready and self.pending.is_cancellable(place):
            self.pending.begin_cancel(place)
            self.append(Settled(place))
            self.acknowledged_cancels[place] = len(self.log)

    # --- the leader

    @rule(ms=st.integers(1, 15))
    def pass_time(self, ms: int) -> None:
        self.now += ms

    @rule(count=st.integers(1, 10))
    def commit(self, count: int) -> None:
        self.committed = min(len(self.log), self.committed + count)

    @rule(limit=st.integers(1, 4), is_written=st.booleans())
    def deliver(self, limit: int, is_written: bool) -> None:
        self.apply()
        if not self.is_ready:
            return
        due = self.pending.take_due(self.now, limit)
        assert due == sorted(due)
        if not is_written:
            self.pending.give_back(due)
            return
        for each in due:
            assert each.due_ms <= self.now
            assert self.dues[each.message] == each.due_ms
            offset = self.append(Settled(each.message))
            self.delivered.setdefault(each.message, []).append(offset)

    @rule(count=st.integers(1, 10))
    def retain(self, count: int) -> None:
        """Store pending messages again, then delete the start of the log once the copies are committed."""
        self.apply()
        end = min(self.start + count, self.stable)
        if not self.is_ready or end <= self.start:
            return
        for due in list(self.pending.stored_below(end)):
            self.append(Delayed(len(self.log), due.due_ms, due.message))
        if any(message < end for message in self.pending.in_flight):
            return
        self.committed = len(self.log)
        self.apply()
        if not list(self.pending.stored_below(end)):
            self.start = max(self.start, end)

    @property
    def stable(self) -> int:
        """The last stable offset."""
        first: dict[int, int] = {}
        for offset, event in enumerate(self.log[: self.committed]):
            if isinstance(event, Delayed) and event.producer_id != NO_PRODUCER:
                first.setdefault(event.producer_id, offset)
            elif isinstance(event, Ended):
                first.pop(event.producer_id, None)
        return min(first.values(), default=self.committed)

    @rule(kept=st.integers(0, 10))
    def elect(self, kept: int) -> None:
        """Another replica leads: it has what is committed, and some of the other records."""
        end = min(len(self.log), self.committed + kept)
        del self.log[end:]
        self.delivered = {m: [o for o in offsets if o < end] for m, offsets in self.delivered.items()}
        self.acknowledged_cancels = {m: o for m, o in self.acknowledged_cancels.items() if o <= end}
        for message in [message for message in self.dues if message >= end]:
            del self.dues[message]
        self.pending = PendingMessages()
        self.applied, self.epoch_start = self.start, end

    # --- what must be true

    @invariant()
    def nothing_is_delivered_twice(self) -> None:
        for offsets in self.delivered.values():
            assert len(offsets) <= 1

    @invariant()
    def cancelled_messages_are_not_delivered(self) -> None:
        for message in self.acknowledged_cancels:
            assert not self.delivered.get(message)

    @invariant()
    def every_replica_computes_the_same(self) -> None:
        self.apply()
        other = PendingMessages()
        other.apply(event for event in self.log[self.start : self.committed] if event is not None)
        mine = sorted([*self.pending.queue, *((due, each) for each, due in self.pending.in_flight.items())])
        assert sorted(other.queue) == mine
        assert all(other.offset_of(each) == self.pending.offset_of(each) for _, each in mine)

    @invariant()
    def pending_is_what_is_committed_and_not_settled(self) -> None:
        self.apply()
        open_from: dict[int, list[int]] = {}
        expected = set()
        for offset, event in enumerate(self.log[: self.committed]):
            if isinstance(event, Delayed) and event.message == offset:
                if event.producer_id == NO_PRODUCER:
                    expected.add(offset)
                else:
                    open_from.setdefault(event.producer_id, []).append(offset)
            elif isinstance(event, Ended):
                ended = open_from.pop(event.producer_id, [])
                expected.update(ended if event.is_commit else ())
            elif isinstance(event, Settled):
                expected.discard(event.message)
        assert {each.message for each in self.pending.queue} | set(self.pending.in_flight) == expected


TestPartition = PartitionMachine.TestCase
TestPartition.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
