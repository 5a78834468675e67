"""Selectors: which records of a log the readers of a projection are shown. No input or output."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from penstock.records.batch import BatchHeader


class Match(NamedTuple):
    """A selected record: its place in the body of its batch."""

    start: int
    end: int
    offset_delta: int


class Selected(NamedTuple):
    matches: list[Match]
    """The records that readers are shown, in the order of the batch."""
    failed: int
    """Number of records on which the decision failed; readers are not shown them."""


class Selector(Protocol):
    """Decides from a record and its batch alone, so that every replica decides the same at any time.

    Used by one thread at a time.
    """

    @property
    def identity(self) -> bytes:
        """Text of the rule: selectors with the same identity select the same records of a partition."""

    def select(self, body: bytes | memoryview, header: BatchHeader) -> Selected:
        """The selected records of a decompressed batch that is no control batch."""


class JointSelector:
    """Selects what two selectors select; the second one is a view's, whose failures count."""

    def __init__(self, first: Selector, second: Selector) -> None:
        self._first = first
        self._second = second

    @property
    def identity(self) -> bytes:
        return joint_identity(self._first.identity, self._second.identity)

    def select(self, body: bytes | memoryview, header: BatchHeader) -> Selected:
        shown = {match.start for match in self._first.select(body, header).matches}
        matches, failed = self._second.select(body, header)
        return Selected([match for match in matches if match.start in shown], failed)


def joint_identity(first: bytes, second: bytes) -> bytes:
    """Identity of `JointSelector` with selectors of these identities."""
    return len(first).to_bytes(4, "big") + first + second
