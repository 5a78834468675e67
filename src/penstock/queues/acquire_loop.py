"""Acquisition in the order of offsets, from one span of a share-partition after another. Loop thread only."""

from __future__ import annotations

from typing import Protocol

from penstock.errors import BrokerError, WouldBlock
from penstock.queues.share_partition import SharePartition
from penstock.queues.share_reading import Fetched, ShareFetchLimits
from penstock.queues.states import AcquireMode


class SpanAcquirer(Protocol):
    """The part of `ShareLeader` that acquires from one span."""

    def acquire_once(
        self, partition: SharePartition, wanted: ShareFetchLimits, sent: int, now_ms: int
    ) -> Fetched | None:
        """Acquire records of the next span; None if there is none. WouldBlock if batch headers are not in memory.

        Batches up to the offset `sent` are not included in the result, because the response has them already.
        """


def acquire_by_offset(
    owner: SpanAcquirer, partition: SharePartition, wanted: ShareFetchLimits, now_ms: int
) -> Fetched:
    fetched = Fetched([], [])
    left_records, left_bytes, sent = wanted.max_records, wanted.max_bytes, -1
    while left_records > 0 and left_bytes > 0:
        before = partition.progress
        try:
            found = owner.acquire_once(partition, wanted, sent, now_ms)
        except (WouldBlock, BrokerError):
            if not fetched.acquired:
                raise
            break  # deliver the records that were acquired before the error
        if found is None:
            break
        if found.acquired and wanted.mode == AcquireMode.RECORD_LIMIT:
            return found
        fetched.acquired.extend(found.acquired)
        left_records -= sum(each.last_offset - each.first_offset + 1 for each in found.acquired)
        fetched.records.extend(found.records)
        left_bytes -= sum(map(len, found.records))
        sent = found.sent
        if before == partition.progress or partition.has_small_group:
            break
        wanted = wanted._replace(
            max_records=left_records,
            max_bytes=left_bytes,
            has_others=wanted.has_others or bool(fetched.acquired),
            is_continued=bool(fetched.acquired),
        )
    return fetched
