"""Events of segments in files: applied at once they leave the same pending messages as one after the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.delay.events import Delayed, DelayedRun, Ended, Event, Settled
from penstock.delay.packing import pack_pairs
from penstock.delay.pending import PendingMessages
from penstock.delay.segment_events import SegmentEvents

Steps = list[tuple[str, int, int]]
steps = st.lists(
    st.tuples(
        st.sampled_from(["delay", "run", "begin", "commit", "abort", "settle", "copy", "next segment"]),
        st.integers(0, 2),
        st.integers(0, 50),
    ),
    max_size=60,
)


def history(drawn: Steps) -> list[list[Event]]:
    """Events of a log as a leader writes them, by segment: only pending messages are settled or stored again."""
    segments: list[list[Event]] = [[]]
    pending: list[Delayed] = []
    open_: dict[int, list[Delayed]] = {}
    for offset, (kind, producer, number) in enumerate(drawn):
        events = segments[-1]
        if kind == "run":
            pending.append(Delayed(offset, 1_000 + number, offset))
            events.append(DelayedRun(pack_pairs([(1_000 + number, offset)])))
        elif kind in ("delay", "begin"):
            event = Delayed(offset, 1_000 + number, offset, producer if kind == "begin" else -1)
            events.append(event)
            (pending if kind == "delay" else open_.setdefault(producer, [])).append(event)
        elif kind in ("commit", "abort"):
            events.append(Ended(producer, kind == "commit"))
            pending += open_.pop(producer, []) if kind == "commit" else open_.pop(producer, [])[:0]
        elif kind == "next segment":
            segments.append([])
        elif pending and kind == "settle":
            events.append(Settled(pending.pop(number % len(pending)).message))
        elif pending:
            moved = pending[number % len(pending)]
            events.append(Delayed(offset, moved.due_ms, moved.message))
    return segments


def state(pending: PendingMessages) -> object:
    messages = sorted(pending.queue)
    where = [pending.offset_of(each.message) for each in messages]
    return messages, where, {producer: left for producer, left in pending.open.items() if left}, len(pending)


@given(steps, st.integers(0, 5))
def test_files_lead_to_the_same_pending_messages(drawn: Steps, files: int) -> None:
    """The first segments are read from files, as a new leader does."""
    one_by_one, at_once = PendingMessages(), PendingMessages()
    for number, events in enumerate(history(drawn)):
        one_by_one.apply(events)
        if number >= files:
            at_once.apply(events)
            continue
        made = SegmentEvents()
        made.apply(events[: len(events) // 2])
        again = SegmentEvents.unpack(memoryview(made.pack()))
        again.apply(events[len(events) // 2 :])
        at_once.apply_segment(SegmentEvents.unpack(memoryview(again.pack())))
    assert state(at_once) == state(one_by_one)


def test_many_messages_of_a_file_are_settled_at_once() -> None:
    made = SegmentEvents()
    made.apply([DelayedRun(pack_pairs((offset % 7, offset) for offset in range(20_000)))])
    pending = PendingMessages()
    pending.apply_segment(SegmentEvents.unpack(memoryview(made.pack())))
    later = SegmentEvents()
    later.apply(Settled(offset) for offset in range(19_999, -1, -1) if offset % 10)
    pending.apply_segment(SegmentEvents.unpack(memoryview(later.pack())))
    assert sorted(each.message for each in pending.queue) == list(range(0, 20_000, 10))
    assert len(pending) == 2_000
    due = pending.take_due(6, 10_000)
    assert due == sorted(due)
    assert len(due) == 2_000


def test_a_file_has_no_messages_that_its_segment_settles() -> None:
    made = SegmentEvents()
    made.apply([Settled(3), DelayedRun(pack_pairs((7, offset) for offset in range(10, 10_000)))])
    made.apply(Settled(offset) for offset in range(10, 9_000))
    again = SegmentEvents.unpack(memoryview(made.pack()))
    assert list(again.settled) == [3]
    assert sorted(each.message for block in again.blocks for each in block) == list(range(9_000, 10_000))
    again.apply([Settled(9_000)])
    assert len(again.pack()) < 20_000
    assert list(again.settled) == [3]
