"""Entries of derived indexes: a sort key, and the place of a record.

    sort key 8 | offset 4, from the segment's base | position of its batch 4 | place in that 4, behind its header and
    decompressed | crc 4 of the header and the record                   (big-endian, so that bytes sort right)

The sort key is the hash of a record's key in the key index, the due time in the index of a delay topic, and zero in the
index of a view, whose entries are in the order of offsets. The CRC lets a record be read without the rest of its batch.
No input or output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from penstock.records.batch import HEADER_SIZE, BatchHeader
from penstock.records.compression import decompress
from penstock.records.varints import decode_int, decode_long

SORT_KEY_BYTES = 8
ENTRY_SIZE = 24
PLACE = Struct(">IIII")
"""Relative offset, position, place and CRC, behind the sort key."""

EntriesOf = Callable[[memoryview, BatchHeader, int, int, int], list[bytes]]
"""The entries of a batch, in the order of offsets: batch, header, base offset of the segment, position of the batch in
the segment, and the limit of decompressed bytes. Pool threads.
"""


class RecordPlace(NamedTuple):
    """The place of a record."""

    relative_offset: int
    position: int
    place: int
    crc: int


@dataclass(frozen=True, slots=True)
class IndexKind:
    """Kind of a derived index: its entries and the names of its files."""

    suffix: str
    """Suffix of the files beside the segments; ends with one of `DERIVED_SUFFIXES`."""
    magic: bytes
    """The first four bytes of a file."""
    entries_of: EntriesOf
    identity: bytes = b""
    """Rule that the entries depend on besides the log. A file that was made with another identity is not valid."""
    is_hashed: bool = False
    """True if entries are looked up by sort keys that are hashes: the file then has a Bloom filter."""


def batch_body(batch: memoryview, header: BatchHeader, max_decompressed_bytes: int) -> memoryview:
    return decompress(header.codec, batch[HEADER_SIZE : header.size], max_decompressed_bytes)


def read_key(body: bytes | memoryview, place: int) -> tuple[int, int, int, int]:
    """End, offset delta and key position of the record at a place. IndexError or InvalidBatch if no record is there."""
    length, content = decode_int(body, place)
    end = content + length
    _, position = decode_long(body, content + 1)
    delta, position = decode_int(body, position)
    key_length, key_start = decode_int(body, position)
    if length < 0 or delta < 0 or key_start + key_length > end or end > len(body):
        raise IndexError("a record is longer than its batch")
    return end, delta, key_start, key_length
