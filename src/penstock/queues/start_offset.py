"""Start offset of a share group in a partition that it has not read yet (`share.auto.offset.reset`)."""

from __future__ import annotations

from penstock.config import ShareOffsetReset
from penstock.errors import BrokerError, ErrorCode, StorageError
from penstock.replication.replica import Replica
from penstock.threads import Threads


async def find_start_offset(replica: Replica, reset: ShareOffsetReset, threads: Threads, now_ms: int) -> int:
    log = replica.log
    if reset.strategy == "earliest":
        return log.log_start_offset
    if reset.strategy == "latest":
        return log.high_watermark
    timestamp, below = now_ms - reset.duration_ms, log.high_watermark
    try:
        found = await threads.run("read", lambda: log.find_timestamp(timestamp, below))
    except StorageError as error:
        raise BrokerError(ErrorCode.kafka_storage_error, str(error)) from error
    return below if found is None else max(found.offset, log.log_start_offset)
