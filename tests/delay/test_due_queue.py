"""The queue of due messages beside a plain dictionary."""

from __future__ import annotations

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.delay.due_queue import DueQueue
from penstock.delay.packing import DueMessage, pack_pairs

YEAR_MS = 31_536_000_000
DUES = st.integers(0, 40) | st.integers(0, 2 * YEAR_MS)


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue = DueQueue(heap_messages=5, block_ids=64, run_messages=2)
        self.model: dict[int, int] = {}
        self.next_id = 0

    def sorted(self) -> list[DueMessage]:
        return sorted(DueMessage(due, message) for message, due in self.model.items())

    @rule(due=DUES, gap=st.integers(1, 30))
    def add(self, due: int, gap: int) -> None:
        self.next_id += gap
        self.queue.add(due, self.next_id)
        self.model[self.next_id] = due

    @rule(dues=st.lists(DUES, max_size=8), gap=st.integers(1, 30))
    def add_run(self, dues: list[int], gap: int) -> None:
        run = [DueMessage(due, self.next_id + gap * place) for place, due in enumerate(dues, start=1)]
        self.queue.add_run(pack_pairs(run))
        self.model.update((each.message, each.due_ms) for each in run)
        self.next_id += gap * len(run)

    @rule(messages=st.sets(st.integers(0, 400)))
    def discard_many(self, messages: set[int]) -> None:
        self.queue.discard_sorted(array("q", sorted(messages)))
        for message in messages:
            self.model.pop(message, None)

    @rule(end=st.integers(0, 200))
    def discard_below(self, end: int) -> None:
        gone = [message for message in self.model if message < end]
        assert self.queue.discard_below(end) == len(gone)
        for message in gone:
            del self.model[message]

    @rule(place=st.integers(0, 200))
    def discard(self, place: int) -> None:
        assert self.queue.discard(place) is (self.model.pop(place, None) is not None)

    @rule(now=DUES, limit=st.integers(1, 10))
    def pop(self, now: int, limit: int) -> None:
        due = [each for each in self.sorted() if each.due_ms <= now][:limit]
        assert self.queue.pop_due(now, limit) == due
        for each in due:
            del self.model[each.message]

    @rule(due=DUES, place=st.integers(0, 200))
    def add_again(self, due: int, place: int) -> None:
        if place not in self.model:
            self.queue.add(due, place)
            self.model[place] = due
            self.next_id = max(self.next_id, place)

    @rule(after=DUES, limit=st.integers(1, 10))
    def page(self, after: int, limit: int) -> None:
        start = DueMessage(after, 100)
        assert self.queue.page(start, limit) == [each for each in self.sorted() if each > start][:limit]
        assert self.queue.page(None, limit) == self.sorted()[:limit]

    @rule(end=st.integers(0, 300))
    def below(self, end: int) -> None:
        assert sorted(self.queue.below(end)) == [each for each in self.sorted() if each.message < end]

    @rule(place=st.integers(0, 200))
    def look_up(self, place: int) -> None:
        assert (place in self.queue) is (place in self.model)
        assert self.queue.due_of(place) == self.model.get(place)

    @invariant()
    def has_the_same_messages(self) -> None:
        assert len(self.queue) == len(self.model)
        assert self.queue.first() == (self.sorted()[0] if self.model else None)
        assert sorted(self.queue) == self.sorted()


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)


@given(st.sets(st.integers(0, 300)), st.integers(0, 310))
def test_messages_below_an_id_go_at_once(messages: set[int], end: int) -> None:
    queue = DueQueue(heap_messages=16, block_ids=64)
    for message in sorted(messages):
        queue.add(message * 7 % 50, message)
    left = {message for message in messages if message >= end}
    assert queue.discard_below(end) == len(messages) - len(left)
    assert {each.message for each in queue} == left
    assert len(queue) == len(left)
    due = queue.pop_due(50, 1_000)
    assert [each.message for each in due] == [
        message for _, message in sorted((message * 7 % 50, message) for message in left)
    ]
