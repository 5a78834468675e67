"""Planted bugs of the order of delivery: each delivers a record before another one, or never."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from planting import planted_in_cluster

from penstock.queues.delivery_order import DeliveryOrder
from penstock.queues.ranges import Range
from penstock.queues.share_partition import SharePartition


@planted_in_cluster("key order", needs={"ordered shares"})
@contextmanager
def a_key_is_freed_by_lock_expiry_while_its_record_is_being_settled() -> Iterator[None]:
    """The search for expired locks frees the keys of records whose settlement is being written."""
    settling: WeakKeyDictionary[DeliveryOrder, list[int]] = WeakKeyDictionary()
    take, expire = DeliveryOrder.take_settling, SharePartition.expire

    def remember(self: DeliveryOrder) -> list[int]:
        taken = take(self)
        settling.setdefault(self, []).extend(taken)
        return taken

    def free(self: SharePartition, now_ms: int) -> int:
        if self.order is not None:
            self.order.free_keys(settling.pop(self.order, []))
        return expire(self, now_ms)

    with patch.object(DeliveryOrder, "take_settling", remember), patch.object(SharePartition, "expire", free):
        yield


@planted_in_cluster("key order", needs={"ordered shares"})
def a_key_is_freed_before_its_settlement_is_durable() -> AbstractContextManager[Any]:
    """The next record of a key is delivered while the settlement of the one before is being written."""

    def free(self: DeliveryOrder, first: int, last: int) -> None:
        if self.keys is not None:
            self.free_keys(self.keys.within(first, last))

    return patch.object(DeliveryOrder, "on_settled", free)


@planted_in_cluster("key order", needs={"ordered shares"})
def a_released_record_frees_its_key() -> AbstractContextManager[Any]:
    """The next record of a key is delivered while a released one waits for its next delivery."""
    release = SharePartition._release

    def free(self: SharePartition, held: Range, *arguments: Any) -> None:
        offsets = list(range(held.first, held.last + 1))
        release(self, held, *arguments)
        if self.order is not None:
            self.order.free_keys(offsets)

    return patch.object(SharePartition, "_release", free)


@planted_in_cluster("Q1", "Q5", "Q7", "priority", needs={"ordered shares"})
def records_are_skipped_while_the_priority_index_lags() -> AbstractContextManager[Any]:
    """The index begins behind the records that were acquired before it has reached them."""
    skip = DeliveryOrder.skip_settled

    def skip_more(self: DeliveryOrder) -> None:
        skip(self)
        self.end_offset = max(self.end_offset, self._states.end_offset)

    return patch.object(DeliveryOrder, "skip_settled", skip_more)
