"""Scanning the batch headers of a segment file without reading the records between them.

Every header is checked before it is used: a scan over damaged bytes ends with CorruptLog. It never loops forever and
never returns other bytes as a batch. Any thread.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import CorruptLog, TornBatch, WouldBlock
from penstock.records.batch import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    crc_matches,
    read_header,
)
from penstock.storage.disk import File

_CHUNK_BYTES = 8192
_SEARCH_BYTES = 1024 * 1024
_MAGIC_BYTE = bytes([MAGIC])
MAX_RELATIVE_OFFSET = 2**31 - 1


def read_range(file: File, position: int, length: int, wait: bool) -> bytes:
    """Read exactly `length` bytes. Without `wait`, WouldBlock if they are not in memory; CorruptLog if they are
    missing.
    """
    content = file.pread(position, length) if wait else file.pread_cached(position, length)
    if content is None:
        raise WouldBlock
    if len(content) < length:
        raise CorruptLog(f"the file ends at {position + len(content)}, before position {position + length}")
    return content


def scan_batches(
    file: File, position: int, end: int, *, base_offset: int, min_offset: int, wait: bool
) -> Iterator[tuple[int, BatchHeader]]:
    """Each batch in [position, end) with its position. `position` and `end` are batch boundaries, and `base_offset` is
    that of the segment. CorruptLog if a batch begins below `min_offset`.
    """
    chunk, start = b"", position
    max_offset = base_offset + MAX_RELATIVE_OFFSET
    while position < end:
        if end - position < HEADER_SIZE:
            raise TornBatch(f"{end - position} bytes at position {position} are less than a batch header")
        if position - start + HEADER_SIZE > len(chunk):
            start = position
            chunk = read_range(file, start, min(_CHUNK_BYTES, end - start), wait)
        header = read_header(chunk, position - start)
        size = header.batch_length + LENGTH_OVERHEAD
        if header.magic != MAGIC or size < HEADER_SIZE or size > end - position:
            is_torn = header.magic == MAGIC and size > end - position
            raise (TornBatch if is_torn else CorruptLog)(
                f"no batch at position {position}: magic {header.magic}, {size} bytes, {end - position} left"
            )
        last_offset = header.base_offset + header.last_offset_delta
        if not min_offset <= header.base_offset <= last_offset <= max_offset:
            raise CorruptLog(
                f"the batch at position {position} has offsets {header.base_offset} to {last_offset}, "
                f"outside of {min_offset} to {max_offset}"
            )
        yield position, header
        min_offset = last_offset + 1
        position += size


def read_batch(file: File, position: int, header: BatchHeader) -> memoryview:
    return memoryview(read_range(file, position, header.size, wait=True))


def find_batch(
    file: File, position: int, end: int, *, base_offset: int, min_offset: int
) -> tuple[int, BatchHeader] | None:
    """Find the first whole batch with a valid CRC after the damaged batch at `position`, to continue a scan there.

    The end of the damaged batch according to its length field is tried first, because a value written by a client can
    look like a batch.
    """

    def is_batch(found: int, header: BatchHeader) -> bool:
        return (
            header.magic == MAGIC
            and min_offset <= header.base_offset <= header.last_offset <= base_offset + MAX_RELATIVE_OFFSET
            and HEADER_SIZE <= header.size <= end - found
            and crc_matches(read_batch(file, found, header), header)
        )

    claimed = _header_behind(file, position, end)
    if claimed is not None and is_batch(*claimed):
        return claimed
    start = position + 1
    while end - start >= HEADER_SIZE:
        chunk = read_range(file, start, min(_SEARCH_BYTES, end - start), wait=True)
        place = chunk.find(_MAGIC_BYTE, MAGIC_POSITION)
        while 0 <= place <= len(chunk) - (HEADER_SIZE - MAGIC_POSITION):
            found, header = start + place - MAGIC_POSITION, read_header(chunk, place - MAGIC_POSITION)
            if is_batch(found, header):
                return found, header
            place = chunk.find(_MAGIC_BYTE, place + 1)
        start += len(chunk) - HEADER_SIZE + 1
    return None


def _header_behind(file: File, position: int, end: int) -> tuple[int, BatchHeader] | None:
    """The end of the batch at `position` according to its length field, and the header there; None if the length is
    not possible.
    """
    if end - position < HEADER_SIZE:
        return None
    size = read_header(read_range(file, position, HEADER_SIZE, wait=True)).size
    if not HEADER_SIZE <= size <= end - position - HEADER_SIZE:
        return None
    return position + size, read_header(read_range(file, position + size, HEADER_SIZE, wait=True))
