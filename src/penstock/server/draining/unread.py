"""Records of a log from an offset on, for groups that may have read everything but transaction markers."""

from __future__ import annotations

from penstock.model import Offset
from penstock.records.batch import HEADER_SIZE, read_header
from penstock.storage.log import Log

_CHUNK_BYTES = 65_536


def has_records(log: Log, offset: Offset, below: Offset) -> bool:
    """Whether there are other records than transaction markers between the offsets. Waits for the disk: call it in a
    pool. StorageError if the log cannot be read.
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
