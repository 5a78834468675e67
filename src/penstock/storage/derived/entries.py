"""Entries of derived indexes: a sort key, and the place of a record.

    sort key 8 | offset 4, relative to the segment | position of the batch in the segment 4 |
    place of the record in the decompressed body of the batch 4 | crc of the batch header and the record 4
    (big-endian, so that the order of the bytes is the order of the numbers)

The sort key is the hash of a record's key in the key index, the due time in the index of a delay topic, and zero in the
index of a view, whose entries are in the order of offsets. With the CRC a record can be read and verified without the
rest of its batch. Reads and writes no files.
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
"""The part of an entry after the sort key: relative offset, position, place and CRC."""

EntriesOf = Callable[[memoryview, BatchHeader, int, int, int], list[bytes]]
"""Function that returns the entries of a batch in the order of offsets. Arguments: batch, header, base offset of the
segment, position of the batch in the segment, maximum of decompressed bytes. Runs in a thread pool.
"""


class RecordPlace(NamedTuple):
    """The place of a record: an entry without its sort key."""

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
    """Identity of the rule that selects the entries, such as a filter. A file with another identity is not valid."""
    is_hashed: bool = False
    """True if entries are looked up by sort keys that are hashes: the file then has a Bloom filter."""


def batch_body(batch: memoryview, header: BatchHeader, max_decompressed_bytes: int) -> memoryview:
    return decompress(header.codec, batch[HEADER_SIZE : header.size], max_decompressed_bytes)


def read_key(body: bytes | memoryview, place: int) -> tuple[int, int, int, int]:
    """End, offset delta, key position and key length of the record at a place in a decompressed body.

    IndexError or InvalidBatch if no record is at the place.
    """
    length, content = decode_int(body, place)
    end = content + length
    _, position = decode_long(body, content + 1)
    delta, position = decode_int(body, position)
    key_length, key_start = decode_int(body, position)
    if length < 0 or delta < 0 or key_start + key_length > end or end > len(body):
        raise IndexError("a record is longer than its batch")
    return end, delta, key_start, key_length
