"""Acquisition on the leader of a share-partition whose group has priorities or order by key. Loop thread only.

A fetch gets records of one level, in the order of their offsets, because clients process a response in that order.
QueueReceive may get records of several levels, the highest first. The next record of a key may be delivered when the
settlement of the record before is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from penstock.errors import BrokerError, ErrorCode, WouldBlock
from penstock.queues.acquire_loop import SpanAcquirer
from penstock.queues.order_indexer import IndexOwner, OrderIndexer
from penstock.queues.share_partition import SharePartition
from penstock.queues.share_reading import Fetched, ShareFetchLimits
from penstock.queues.state_writer import Stored
from penstock.threads import Threads


class OrderedOwner(IndexOwner, SpanAcquirer, Protocol):
    def store(self, stored: Stored | None) -> None: ...


class OrderedAcquiring:
    def __init__(self, owner: OrderedOwner, threads: Threads) -> None:
        self._owner = owner
        self._indexer = OrderIndexer(owner, threads)

    def close(self) -> None:
        self._indexer.close()

    def is_ready(self, partition: SharePartition) -> bool:
        """True if records may be acquired: the share-partition has no order of delivery, or the index is up to date."""
        return partition.order is None or self._indexer.is_ready(partition.order)

    def acquire(self, partition: SharePartition, wanted: ShareFetchLimits, now_ms: int) -> Fetched:
        """Acquire records in the order of delivery; WouldBlock if batch headers are not in memory."""
        order = partition.order
        assert order is not None
        fetched = Fetched([], [])
        if not self._indexer.is_ready(order):
            return self._checked(partition, fetched)
        sent, level = -1, -1
        while wanted.max_records > 0 and wanted.max_bytes > 0:
            before = partition.progress
            span = partition.next_span(self._owner.read_limit)
            if span is None or (fetched.acquired and wanted.is_one_level and order.chosen_level != level):
                break
            if fetched.acquired and span[0] < fetched.acquired[-1].first_offset:
                sent = -1
            level = order.chosen_level
            try:
                found = self._owner.acquire_once(partition, wanted, sent, now_ms)
            except (WouldBlock, BrokerError):
                if not fetched.acquired:
                    raise
                break  # deliver the records that were acquired before the error
            if found is None:
                break
            fetched.acquired.extend(found.acquired)
            fetched.records.extend(found.records)
            sent = found.sent
            count = sum(each.last_offset - each.first_offset + 1 for each in found.acquired)
            if before == partition.progress or partition.has_small_group:
                break
            wanted = wanted._replace(
                max_records=wanted.max_records - count,
                max_bytes=wanted.max_bytes - sum(map(len, found.records)),
                has_others=wanted.has_others or bool(fetched.acquired),
                is_continued=bool(fetched.acquired),
            )
        if order.has_settling:
            self._owner.store(None)
        return self._checked(partition, fetched)

    def _checked(self, partition: SharePartition, fetched: Fetched) -> Fetched:
        """Raise the error of the index if it has failed and nothing could be acquired."""
        failure, order = self._indexer.failure, partition.order
        is_behind = order is not None and order.end_offset < self._owner.read_limit
        if failure is not None and is_behind and not fetched.acquired:
            raise failure
        return fetched

    def free_keys_when(self, partition: SharePartition, store: Callable[[Stored], None]) -> None:
        """Make the next records of settled records' keys available when the settlement is durable.

        `store` writes the state and calls back with the outcome.
        """
        order = partition.order
        offsets = [] if order is None else order.take_settling()
        if order is None or not offsets:
            return

        def on_stored(error: BrokerError | None) -> None:
            if error is None:
                order.free_keys(offsets)
                self._owner.wake()
            elif error.code is ErrorCode.request_timed_out and self._owner.partition is partition:
                store(on_stored)  # the write is repeated, so wait for it again

        store(on_stored)
