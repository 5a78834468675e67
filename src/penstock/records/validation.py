"""Checks on a produced batch before it is appended.

`check_batch` reads only the header and is called for every produced batch. `check_records` decodes the records, which
costs time for each record: it is called only for topics that need it, and runs in a thread pool.
"""

from __future__ import annotations

from typing import NoReturn

from penstock.errors import ErrorCode, InvalidBatch
from penstock.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    KNOWN_ATTRIBUTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    crc_matches,
    read_header,
)
from penstock.records.compression import Codec, decompress
from penstock.records.iteration import record_timestamp
from penstock.records.walking import layouts

MIN_RECORD_SIZE = 7  # length, attributes, timestamp delta, offset delta, key, value, headers: one byte each

# Limit against compressed batches that grow much more than a hundredfold when they are decompressed.
_MAX_RATIO = 100
_RATIO_FLOOR_BYTES = 1024 * 1024
# A compressed batch can hold millions of empty records, each of which costs microseconds to check.
_MAX_CHECKED_RECORDS = 250_000


def check_batch(buffer: memoryview, *, max_bytes: int) -> BatchHeader:
    """Check that `buffer` is exactly one valid batch and return its header; InvalidBatch with the reason if not."""
    size = len(buffer)
    if size < HEADER_SIZE or buffer[MAGIC_POSITION] != MAGIC:
        _refuse_format(buffer)
    header = read_header(buffer)
    base_offset, length, _, _, _, attributes, last_delta, _, _, producer_id, epoch, sequence, count = header
    if length + LENGTH_OVERHEAD != size:
        _refuse_length(size - LENGTH_OVERHEAD - length)
    if size > max_bytes:
        raise InvalidBatch(
            ErrorCode.message_too_large, f"the batch has {size} bytes, max.message.bytes is {max_bytes}"
        )
    if not crc_matches(buffer, header):
        raise InvalidBatch(ErrorCode.corrupt_message, "the CRC of the batch does not match")
    if attributes:
        _check_attributes(header)
    if count <= 0 or last_delta != count - 1 or base_offset < 0:
        raise InvalidBatch(
            ErrorCode.invalid_record, "the record count and the offsets of the batch do not agree"
        )
    if not attributes & CODEC_MASK and count * MIN_RECORD_SIZE > size - HEADER_SIZE:
        raise InvalidBatch(ErrorCode.invalid_record, "the batch claims more records than its bytes can hold")
    if producer_id != -1 and (producer_id < 0 or epoch < 0 or sequence < 0):
        raise InvalidBatch(
            ErrorCode.invalid_record, "the batch has a producer id without an epoch or a sequence"
        )
    return header


def check_records(
    buffer: memoryview, header: BatchHeader, *, max_decompressed_bytes: int, require_keys: bool
) -> None:
    """Check the records of a batch that has passed `check_batch`; InvalidBatch if a record is not valid."""
    if header.record_count > _MAX_CHECKED_RECORDS:
        raise InvalidBatch(
            ErrorCode.invalid_record, f"the batch has more than {_MAX_CHECKED_RECORDS} records"
        )
    limit = min(max_decompressed_bytes, max(_RATIO_FLOOR_BYTES, _MAX_RATIO * len(buffer)))
    body = decompress(header.codec, buffer[HEADER_SIZE:], limit)
    without_key = []
    for index, (_, _, timestamp_delta, offset_delta, _, key_length, *_) in enumerate(
        layouts(body, header.record_count)
    ):
        record_timestamp(header, timestamp_delta)
        if offset_delta != index:
            raise InvalidBatch(ErrorCode.invalid_record, "the offsets inside the batch are not consecutive")
        if require_keys and key_length < 0:
            without_key.append(index)
    if without_key:
        raise InvalidBatch(
            ErrorCode.invalid_record,
            "a record has no key, which a compacted topic requires",
            tuple(without_key),
        )


def _refuse_format(buffer: memoryview) -> NoReturn:
    if len(buffer) == 0:
        raise InvalidBatch(ErrorCode.invalid_record, "the request has no record batch for the partition")
    magic = buffer[MAGIC_POSITION] if len(buffer) > MAGIC_POSITION else MAGIC
    if magic < MAGIC:
        raise InvalidBatch(
            ErrorCode.unsupported_for_message_format, f"message format {magic} is no longer supported"
        )
    if magic > MAGIC:
        raise InvalidBatch(ErrorCode.invalid_record, f"message format {magic} is unknown")
    raise InvalidBatch(ErrorCode.corrupt_message, "fewer bytes than a record batch header")


def _refuse_length(left_over: int) -> NoReturn:
    if left_over >= HEADER_SIZE:
        raise InvalidBatch(
            ErrorCode.invalid_record, "the request has more than one record batch for the partition"
        )
    raise InvalidBatch(ErrorCode.corrupt_message, "the batch length does not match the number of bytes")


def _check_attributes(header: BatchHeader) -> None:
    attributes = header.attributes
    if attributes & ~KNOWN_ATTRIBUTES:
        raise InvalidBatch(ErrorCode.invalid_record, "reserved attribute bits are set")
    if header.codec > Codec.ZSTD:
        raise InvalidBatch(ErrorCode.unsupported_compression_type, f"codec {header.codec} is unknown")
    if attributes & CONTROL_FLAG:
        raise InvalidBatch(ErrorCode.invalid_record, "clients must not write control batches")
    if attributes & TRANSACTIONAL_FLAG and header.producer_id < 0:
        raise InvalidBatch(ErrorCode.invalid_record, "a transactional batch needs a producer id")
    if attributes & LOG_APPEND_TIME_FLAG:
        raise InvalidBatch(ErrorCode.invalid_timestamp, "only the broker sets the append time")
