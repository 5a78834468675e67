"""Checks for records of a partition that were not read or delivered yet."""

from __future__ import annotations

from penstock.model import Offset
from penstock.records.batch import HEADER_SIZE, read_header
from penstock.replication.replica import Replica
from penstock.storage.log import Log

_CHUNK_BYTES = 65_536


def has_records(log: Log, offset: Offset, below: Offset) -> bool:
    """True if there are records other than transaction markers from `offset` to below `below`. Waits for the disk, so
    call it in a thread pool. Raises StorageError if the log cannot be read.
    """
    offset = max(offset, log.log_start_offset)
    while offset < below:
        records = log.read(offset, _CHUNK_BYTES, below=below, at_least_one=True, wait=True)
        content = records.read()
        position = 0
        while len(content) - position >= HEADER_SIZE:
            header = read_header(content, position)
            if not header.is_control:
                return True
            position += header.size
            offset = header.next_offset
        if not content:
            return False
    return False


def has_undelivered(replica: Replica) -> bool:
    """True if a partition has pending delayed messages, or its leader has not read all of them yet."""
    delayed = replica.delayed
    if delayed is None:
        return replica.log.config.delivery_delay
    is_read = delayed.is_ready and delayed.applied_offset >= replica.log.log_end_offset
    return not (is_read and delayed.pending.is_empty)
