"""Reads of a share-partition's log that acquire nothing: looking at the next records, and reading them into memory."""

from __future__ import annotations

from typing import NamedTuple

from penstock.model import Offset
from penstock.queues.log_spans import LogSpans
from penstock.queues.share_partition import SharePartition
from penstock.queues.states import Acquired, AcquireMode
from penstock.records.log_slice import LogSlice
from penstock.storage.log import Log

_WARM_BYTES = 1 << 20


class Wanted(NamedTuple):
    """Limits of a fetch."""

    member: str
    max_records: int
    batch_size: int
    mode: AcquireMode
    max_bytes: int
    has_others: bool = False
    """Whether the fetch has records of other partitions."""
    lock_ms: int | None = None
    """Lock time; None for that of the group."""


class Fetched(NamedTuple):
    acquired: list[Acquired]
    records: list[LogSlice]
    sent: int = -1
    """Last offset of the batches in `records`."""


class Shown(NamedTuple):
    """Records that are shown without being acquired: first and last offset, delivery count and state."""

    first_offset: int
    last_offset: int
    delivery_count: int
    state: int


def peek(
    log: Log, partition: SharePartition, below: int, max_records: int, max_bytes: int, *, is_committed: bool
) -> tuple[list[Shown], list[LogSlice]]:
    """The first records that are not settled, and the batches that have them; WouldBlock if not in memory."""
    partition.on_log_start(log.log_start_offset)
    ranges: list[Shown] = []
    slices: list[LogSlice] = []
    sent = -1
    for first, last, count, state in partition.unsettled(below, max_records):
        spans = LogSpans(log, first, last, max_bytes, below, is_committed=is_committed)
        shown = [Acquired(each.first, each.last, count) for each in spans if not each.is_hidden]
        found, sent = spans.slices(shown, sent)
        ranges += [Shown(*each, state) for each in shown]
        slices += found
        max_bytes -= sum(map(len, found))
        if max_bytes <= 0:
            break
    return ranges, slices


def touch(log: Log, offset: int) -> None:
    """Read records into memory, in a thread."""
    log.read(Offset(offset), _WARM_BYTES, below=log.high_watermark, at_least_one=True, wait=True).read()


def size_from(log: Log, offset: int, below: int, at_most: int) -> int:
    """Number of bytes of the batches from an offset on, up to a limit but at least one batch."""
    return len(log.read(Offset(offset), at_most, below=Offset(below), at_least_one=True))
