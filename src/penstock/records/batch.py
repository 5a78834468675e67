"""Header of a record batch (magic 2), read and changed in place in the bytes of the batch.

    base offset 8 | length 4 | leader epoch 4 | magic 1 | crc 4 | attributes 2 | last offset delta 4 |
    base timestamp 8 | max timestamp 8 | producer id 8 | producer epoch 2 | base sequence 4 | record count 4

The CRC does not cover base offset, length, leader epoch and magic, so that offsets can be assigned without computing a
CRC. A `buffer` starts with the batch. No function relies on the header being valid.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct, error
from typing import NamedTuple

from crc32c import crc32c
from typing_extensions import Buffer

from penstock.errors import ErrorCode, InvalidBatch
from penstock.model import LeaderEpoch, Offset

_HEADER = Struct(">qiibIhiqqqhii")
_BASE_OFFSET = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
_LEADER_EPOCH_POSITION = 12
_CRC_POSITION = 17
_ATTRIBUTES_POSITION = 21  # the CRC covers everything from here on
_MAX_TIMESTAMP_POSITION = 35

HEADER_SIZE = _HEADER.size
LENGTH_OVERHEAD = 12  # bytes of the batch that `batch_length` does not include
MAGIC_POSITION = 16
MAGIC = 2
CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
KNOWN_ATTRIBUTES = 0x3F
MAX_SEQUENCE = 2**31 - 1


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes, header included."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType((self.attributes & LOG_APPEND_TIME_FLAG) >> 3)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def has_producer(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; after 2**31 - 1 comes 0."""
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE


_make_header = BatchHeader._make
_read_header = _HEADER.unpack_from


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at a position without checking it."""
    try:
        return _make_header(_read_header(buffer, position))
    except error:
        raise InvalidBatch(ErrorCode.corrupt_message, "fewer bytes than a record batch header") from None


def crc_matches(buffer: memoryview, header: BatchHeader) -> bool:
    """True if the buffer contains the whole batch and its CRC matches."""
    size = header.batch_length + LENGTH_OVERHEAD
    return HEADER_SIZE <= size <= len(buffer) and crc32c(buffer[_ATTRIBUTES_POSITION:size]) == header.crc


def assign(buffer: memoryview, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
    """Write base offset and leader epoch into the batch."""
    _BASE_OFFSET.pack_into(buffer, 0, base_offset)
    _LEADER_EPOCH.pack_into(buffer, _LEADER_EPOCH_POSITION, leader_epoch)


def stamp_append_time(buffer: memoryview, now_ms: int) -> None:
    """Set the timestamp of every record in the batch that fills `buffer` to `now_ms`, as LogAppendTime does."""
    (attributes,) = _ATTRIBUTES.unpack_from(buffer, _ATTRIBUTES_POSITION)
    _ATTRIBUTES.pack_into(buffer, _ATTRIBUTES_POSITION, attributes | LOG_APPEND_TIME_FLAG)
    _MAX_TIMESTAMP.pack_into(buffer, _MAX_TIMESTAMP_POSITION, now_ms)
    write_crc(buffer)


def write_header(buffer: bytearray | memoryview, header: BatchHeader) -> None:
    _HEADER.pack_into(buffer, 0, *header)


def write_crc(buffer: memoryview) -> None:
    """Write the CRC of the batch that fills `buffer`."""
    _CRC.pack_into(buffer, _CRC_POSITION, crc32c(buffer[_ATTRIBUTES_POSITION:]))
