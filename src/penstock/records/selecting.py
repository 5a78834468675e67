"""Selectors, which decide which records of a log the readers of a projection receive. No input or output."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from penstock.records.batch import BatchHeader


class Match(NamedTuple):
    """A selected record: its place in the decompressed body of its batch, and its offset delta."""

    start: int
    end: int
    offset_delta: int


class Selected(NamedTuple):
    matches: list[Match]
    """The selected records, in the order of the batch."""
    failed: int
    """Number of records for which the decision failed. They are not selected."""


class Selector(Protocol):
    """Rule that selects records. It depends only on a record and its batch, so that all replicas select the same.

    Used by one thread at a time.
    """

    @property
    def identity(self) -> bytes:
        """Identity of the rule: selectors with the same identity select the same records of a partition."""

    def select(self, body: bytes | memoryview, header: BatchHeader) -> Selected:
        """Select records of a decompressed batch, which is not a control batch."""


class JointSelector:
    """Selector of the records that two selectors both select. `failed` is that of the second, the filter of a view."""

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
