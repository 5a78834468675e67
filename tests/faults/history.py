"""History of sent and acknowledged messages, and the check of the messages that are stored in the end. No IO.

Each message carries its producer, partition and number, so that a stored log can be checked: no acknowledged
message is lost, none is duplicated, and messages of a producer are in send order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

MOST_SHOWN = 10


@dataclass(frozen=True, slots=True, order=True)
class Sent:
    """Identity of a message: unique, and increasing in send order for each producer and partition."""

    producer: int
    partition: int
    number: int

    def encode(self, padding: bytes = b"") -> bytes:
        return f"{self.producer} {self.partition} {self.number} ".encode() + padding

    @classmethod
    def decode(cls, value: bytes) -> Sent:
        producer, partition, number, _ = value.split(b" ", 3)
        return cls(int(producer), int(partition), int(number))


@dataclass(frozen=True, slots=True)
class Stored:
    """A message that was read back."""

    partition: int
    offset: int
    sent: Sent


@dataclass(slots=True)
class History:
    """Outcomes of all messages. An unacknowledged message may be stored, but at most once."""

    sent: set[Sent] = field(default_factory=set)
    acknowledged: dict[Sent, int] = field(default_factory=dict)
    """Acknowledged messages with their offset; a negative offset means that the client did not get one."""
    refused: list[str] = field(default_factory=list)

    def violations(self, stored: Iterable[Stored]) -> list[str]:
        """Violations in the stored messages, which are given in read order; empty if there are none."""
        found = list(stored)
        first = {message.sent: message for message in reversed(found)}
        checks = (
            self._lost(first),
            self._strange(found),
            self._misplaced(first),
            _twice(found),
            _out_of_order(found),
            _offsets_not_rising(found),
        )
        return [sentence for check in checks for sentence in check[:MOST_SHOWN]]

    def _lost(self, first: dict[Sent, Stored]) -> list[str]:
        return [
            f"acknowledged at {self.acknowledged[sent]}, lost: {sent}"
            for sent in sorted(self.acknowledged)
            if sent not in first
        ]

    def _strange(self, found: list[Stored]) -> list[str]:
        wrong = (m for m in found if m.sent not in self.sent or m.sent.partition != m.partition)
        return [f"never sent to that partition: {message}" for message in wrong]

    def _misplaced(self, first: dict[Sent, Stored]) -> list[str]:
        answered = (
            (first[sent], offset)
            for sent, offset in self.acknowledged.items()
            if sent in first and offset >= 0
        )
        return [
            f"answered offset {offset}, but {message}"
            for message, offset in answered
            if message.offset != offset
        ]


def _twice(found: list[Stored]) -> list[str]:
    seen: dict[Sent, int] = {}
    repeated = []
    for message in found:
        if message.sent in seen:
            repeated.append(f"twice, at {seen[message.sent]} and {message.offset}: {message.sent}")
        seen[message.sent] = message.offset
    return repeated


def _out_of_order(found: list[Stored]) -> list[str]:
    last: dict[tuple[int, int], Stored] = {}
    wrong = []
    for message in found:
        key = (message.sent.producer, message.partition)
        if key in last and message.sent.number < last[key].sent.number:
            wrong.append(f"out of order: {message} after {last[key]}")
        last[key] = message
    return wrong


def _offsets_not_rising(found: list[Stored]) -> list[str]:
    last: dict[int, int] = defaultdict(lambda: -1)
    wrong = []
    for message in found:
        if message.offset <= last[message.partition]:
            wrong.append(f"offset does not rise: {message} after {last[message.partition]}")
        last[message.partition] = message.offset
    return wrong
