"""Queue streams of a gateway on a queue in memory: receivers of messages, held messages, and planted bugs of both."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from random import Random
from uuid import UUID

import pytest

from penstock.gateway.push import queue_feed
from penstock.gateway.push.held_messages import MAX_CREDIT, HeldMessages
from penstock.gateway.push.queue_feed import Line, Taker, hand_out
from penstock.internal_client.queue_messages import ReceivedMessage
from penstock.internal_client.receipts import Receipt
from penstock.records.iteration import Record

STEPS = 400
SEEDS = 8
Patch = pytest.MonkeyPatch


def delivered(number: int) -> ReceivedMessage:
    record = Record(number, 0, None, b"", ())
    return ReceivedMessage(record, 0, 1, Receipt(UUID(int=1), 0, number, bytes(16)), 30_000, 1)


class Stream:
    """A stream without a socket."""

    def __init__(self) -> None:
        self.held = HeldMessages()
        self.given: list[str] = []

    @property
    def room(self) -> int:
        return self.held.room

    def give(self, message: ReceivedMessage) -> None:
        self.held.add(message.receipt)
        self.given.append(message.receipt)

    def fail(self, error: Exception) -> None:
        raise error


class Model:
    """Random streams, grants and settlements. Checks after each step what must be true."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._streams = [Stream() for _ in range(5)]
        self._credit = [0] * 5
        self._line: Line = OrderedDict()
        self._numbers = 0
        self._owner: dict[str, int] = {}
        """The stream of each message that is not settled."""

    def run(self) -> None:
        for _ in range(STEPS):
            self._random.choice((self._grant, self._deliver, self._settle))()
            for number, stream in enumerate(self._streams):
                mine = {receipt for receipt, owner in self._owner.items() if owner == number}
                assert set(stream.held.receipts) == mine
                assert len(mine) <= self._credit[number], "a stream holds more than its credit"

    def _grant(self) -> None:
        number = self._random.randrange(5)
        credit = self._random.randrange(1, 4)
        self._streams[number].held.grant(credit)
        self._credit[number] += credit
        self._wait(self._streams[number])

    def _wait(self, stream: Stream) -> None:
        if stream.room and stream not in self._line:
            self._line[stream] = None

    def _deliver(self) -> None:
        count = self._random.randrange(1, 6)
        messages = [delivered(self._numbers + each) for each in range(count)]
        self._numbers += count
        before = [len(each.given) for each in self._streams]
        waiting = {number for number, each in enumerate(self._streams) if each in self._line and each.room}
        left = queue_feed.hand_out(messages, self._line)
        counts = {}
        for number, stream in enumerate(self._streams):
            counts[number] = len(stream.given) - before[number]
            for receipt in stream.given[before[number] :]:
                assert receipt not in self._owner
                self._owner[receipt] = number
        assert sum(counts.values()) + len(left) == count
        for number in waiting:
            if self._streams[number].room:
                assert not left, "a message returned although a stream had room"
                assert counts[number] >= max(counts.values()) - 1, "a stream with room got less than others"

    def _settle(self) -> None:
        """A random stream settles a random message; only its own may count."""
        if not self._owner:
            return
        receipt = self._random.choice(sorted(self._owner))
        number = self._random.randrange(5)
        stream = self._streams[number]
        if stream.held.holds(receipt):
            stream.held.remove([receipt])
            assert self._owner.pop(receipt) == number, "settled over the socket of another stream"
            self._wait(stream)


def run_all() -> None:
    for seed in range(SEEDS):
        Model(seed).run()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_messages_are_shared_and_held_by_one_stream(seed: int) -> None:
    Model(seed).run()


def settled_by_any_receipt(patch: Patch) -> None:
    patch.setattr(HeldMessages, "holds", lambda self, receipt: True)


def more_than_the_credit(patch: Patch) -> None:
    patch.setattr(HeldMessages, "room", property(lambda self: self._credit))


def first_stream_takes_all(patch: Patch) -> None:
    def greedy(found: list[ReceivedMessage], line: Line) -> list[ReceivedMessage]:
        left = list(found)
        for taker in tuple(line):
            while left and taker.room:
                taker.give(left.pop(0))
            if not taker.room:
                del line[taker]
        return left

    patch.setattr(queue_feed, "hand_out", greedy)


def full_stream_ends_the_round(patch: Patch) -> None:
    def hasty(found: list[ReceivedMessage], line: Line) -> list[ReceivedMessage]:
        for place, message in enumerate(found):
            taker: Taker | None = line.popitem(last=False)[0] if line else None
            if taker is None or taker.room == 0:
                return found[place:]
            taker.give(message)
            if taker.room > 1:
                line[taker] = None
        return []

    patch.setattr(queue_feed, "hand_out", hasty)


@pytest.mark.parametrize(
    "plant",
    [settled_by_any_receipt, more_than_the_credit, first_stream_takes_all, full_stream_ends_the_round],
)
def test_planted_bug_is_noticed(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        run_all()


def test_credit_adds_up_to_the_limit() -> None:
    held = HeldMessages()
    for _ in range(MAX_CREDIT + 5):
        held.grant(1)
    assert held.room == MAX_CREDIT
    held.add("r1")
    assert (held.room, len(held)) == (MAX_CREDIT - 1, 1)


def test_thousand_streams_get_ten_each() -> None:
    line: Line = OrderedDict()
    streams = [Stream() for _ in range(1_000)]
    for place, stream in enumerate(streams):
        stream.held.grant(10 + place % 7)
        line[stream] = None
    for start in range(0, 10_000, 500):
        assert hand_out([delivered(start + each) for each in range(500)], line) == ()
    assert {len(stream.given) for stream in streams} == {10}
