"""Limits and results of a fetch from a share-partition, and a peek at its next records without an acquisition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.errors import WouldBlock
from penstock.queues.acquiring import Span
from penstock.queues.record_source import Part, RecordSource
from penstock.queues.share_partition import SharePartition
from penstock.queues.states import Acquired, AcquireMode


class ShareFetchLimits(NamedTuple):
    """Limits of a fetch."""

    member: str
    max_records: int
    batch_size: int
    mode: AcquireMode
    max_bytes: int
    has_others: bool = False
    """True if the fetch has records of other partitions already."""
    lock_ms: int | None = None
    """Lock time in milliseconds; None for the lock time of the group."""
    is_one_level: bool = True
    """True to acquire only records of one priority level, so that the response is in the order of offsets."""
    is_continued: bool = False
    """True if the fetch has records of this partition already: further batches then have to fit into `max_bytes`."""


class Fetched(NamedTuple):
    acquired: list[Acquired]
    records: list[Part]
    sent: int = -1
    """Last offset of the batches in `records`."""


class Shown(NamedTuple):
    """Range of records in the result of a peek, with delivery count and state."""

    first_offset: int
    last_offset: int
    delivery_count: int
    state: int


class Peeked(NamedTuple):
    ranges: list[Shown]
    records: list[Part]
    is_whole: bool = True
    """False if further records are not in memory; the next peek finds them after they were read."""


def peek(
    source: RecordSource,
    partition: SharePartition,
    below: int,
    max_records: int,
    max_bytes: int,
    *,
    is_committed: bool,
) -> Peeked:
    """The first records that are not settled, and their batches; WouldBlock if none of them is in memory."""
    found: list[Shown] = []
    parts: list[Part] = []
    sent, left = -1, max_records
    # A projection may have records for only a few of the offsets, so that more offsets are needed.
    for first, last, count, state in partition.unsettled(below, below if source.identity else max_records):
        place, end = first, min(last, below - 1)
        while place <= end and left > 0 and max_bytes > 0:
            try:
                spans = source.spans(place, end, max_bytes, below, is_committed=is_committed)
                ranges, behind = _look(spans, place, left)
            except WouldBlock:
                if not found:
                    raise
                return Peeked(found, parts, is_whole=False)
            shown = [Acquired(*each, count) for each in ranges]
            batches, sent = spans.slices(shown, sent)
            found += [Shown(*each, state) for each in shown]
            parts += batches
            left -= sum(each.last_offset - each.first_offset + 1 for each in shown)
            max_bytes -= sum(map(len, batches))
            if behind == place:
                break
            place = behind  # a window of a projection may end before the range
    return Peeked(found, parts)


def _look(spans: Iterable[Span], place: int, at_most: int) -> tuple[list[tuple[int, int]], int]:
    """Ranges of the first `at_most` records in spans that are not hidden, and the offset after the iterated spans."""
    found: list[tuple[int, int]] = []
    for span in spans:
        place = span.last + 1
        if not span.is_hidden:
            last = min(span.last, span.first + at_most - 1)
            found.append((span.first, last))
            at_most -= last - span.first + 1
            if at_most <= 0:
                break
    return found, place
