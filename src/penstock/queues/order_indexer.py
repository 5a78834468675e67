"""Indexes the log for the order of delivery of a share-partition.

New records are indexed on the event loop if they are few and in memory, otherwise in a thread pool, a part at a time.
With priorities no record is acquired meanwhile, so that no record of a lower level overtakes one that is not indexed
yet; after `MAX_WAIT_MS` the indexed records are delivered. Loop thread only.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from penstock.errors import BrokerError, CorruptLog, ErrorCode, InvalidBatch, StorageError, WouldBlock
from penstock.model import Offset
from penstock.observability.logs import Logger
from penstock.queues.delivery_order import DeliveryOrder
from penstock.queues.record_index import IndexedFields, IndexedRecords, index_records
from penstock.queues.share_partition import SharePartition
from penstock.replication.replica import Replica
from penstock.storage.log import Log
from penstock.threads import Threads

MAX_WAIT_MS: Final = 1_000
"""Maximum time in milliseconds that acquisitions wait for the index of a group with priorities."""
_LOOP_BYTES: Final = 65_536
_LOOP_PARTS: Final = 4
_LOOP_DECOMPRESSED_BYTES: Final = 1 << 20
_POOL_BYTES: Final = 1 << 20
_PAUSE_SECONDS: Final = 0.5


class IndexOwner(Protocol):
    """The part of `ShareLeader` that the indexer uses."""

    replica: Replica
    partition: SharePartition | None
    logger: Logger

    @property
    def read_limit(self) -> int: ...

    def now_ms(self) -> int: ...

    def wake(self) -> None: ...


class OrderIndexer:
    def __init__(self, owner: IndexOwner, threads: Threads) -> None:
        self.failure: BrokerError | None = None
        """Error of the last attempt to index the log; None if it succeeded."""
        self._owner = owner
        self._threads = threads
        self._task: asyncio.Task[None] | None = None
        self._behind_since_ms: int | None = None

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def is_ready(self, order: DeliveryOrder) -> bool:
        """Index new records; True if records may be acquired now."""
        order.skip_settled()
        if self._task is None and not self._index_here(order):
            self._task = asyncio.get_running_loop().create_task(self._run())
        if order.end_offset >= self._owner.read_limit or order.is_full:
            self._behind_since_ms = None
            return True
        now_ms = self._owner.now_ms()
        if self._behind_since_ms is None:
            self._behind_since_ms = now_ms
        return not order.wanted.levels or now_ms - self._behind_since_ms >= MAX_WAIT_MS

    def _index_here(self, order: DeliveryOrder) -> bool:
        """Index at most a few parts of the log that are in memory; False if the thread pool has to continue."""
        log = self._owner.replica.log
        for _ in range(_LOOP_PARTS):
            below = self._owner.read_limit
            if order.end_offset >= below or order.is_full:
                return True
            try:
                found = _read_here(log, order.end_offset, below, order.wanted)
            except (BrokerError, WouldBlock, InvalidBatch, CorruptLog, StorageError):
                return False  # left to the thread pool: waiting for the disk, large batches, and the report of damage
            if found is None:
                return False
            order.add(found)
        return order.end_offset >= self._owner.read_limit or order.is_full

    async def _run(self) -> None:
        try:
            while await self._index_part():
                self._owner.wake()
        except (BrokerError, InvalidBatch, CorruptLog, StorageError) as error:
            self.failure = BrokerError(ErrorCode.kafka_storage_error, f"the log cannot be indexed: {error}")
            self._owner.logger.warning("order of share-partition could not be indexed", error=str(error))
            await asyncio.sleep(_PAUSE_SECONDS)
        except Exception as error:  # noqa: BLE001 - fetches get an error, and the index is tried again
            self.failure = BrokerError(ErrorCode.unknown_server_error, "the log cannot be indexed")
            self._owner.logger.error("order of share-partition could not be indexed", error)
            await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            self._task = None
        self._owner.wake()

    async def _index_part(self) -> bool:
        """Index a part of the log in a thread pool; True if there may be more to index."""
        partition = self._owner.partition
        order = None if partition is None else partition.order
        if order is None or order.is_full:
            return False
        order.skip_settled()
        log, first, wanted = self._owner.replica.log, order.end_offset, order.wanted
        below = self._owner.read_limit
        if first >= below:
            return False
        found = await self._threads.run("read", lambda: _read_in_pool(log, first, below, wanted))
        self.failure = None
        if partition is self._owner.partition and partition is not None and partition.order is order:
            # The log start may have moved beyond these records.
            if order.end_offset == found.first_offset:
                order.add(found)
            partition.on_log_start(log.log_start_offset)
        return True


def _read_here(log: Log, first: int, below: int, wanted: IndexedFields) -> IndexedRecords | None:
    """Index a part of the log that is in memory; None if the part is large."""
    if first < log.log_start_offset:
        return IndexedRecords(first, min(log.log_start_offset, below))
    part = log.read(Offset(first), _LOOP_BYTES, below=Offset(below), at_least_one=True)
    if len(part) > _LOOP_BYTES:
        return None
    data = part.file.pread_cached(part.position, len(part)) if len(part) else b""
    if data is None:
        return None
    return _indexed(data, first, below, index_records(data, first, wanted, _LOOP_DECOMPRESSED_BYTES))


def _read_in_pool(log: Log, first: int, below: int, wanted: IndexedFields) -> IndexedRecords:
    if first < log.log_start_offset:
        return IndexedRecords(first, min(log.log_start_offset, below))
    data = log.read(Offset(first), _POOL_BYTES, below=Offset(below), at_least_one=True, wait=True).read()
    return _indexed(data, first, below, index_records(data, first, wanted))


def _indexed(data: bytes, first: int, below: int, found: IndexedRecords) -> IndexedRecords:
    """Check the result of an index read. If nothing was read, the log has no records below `below`."""
    if not data:
        found.end_offset = below
    elif found.end_offset <= first:
        raise CorruptLog(f"no batch from offset {first} on")
    return found
