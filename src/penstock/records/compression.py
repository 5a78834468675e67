"""The four codecs of Kafka, with a hard limit on the output of a decompression.

The output buffer is never larger than the limit, and the decoder stops where the buffer ends, whatever length the data
claims. (In addition, zstd keeps a window that is at most as large as the limit.)
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from struct import Struct

import cramjam
from typing_extensions import Buffer

from penstock.errors import ErrorCode, InvalidBatch

MAX_DECOMPRESSED_BYTES = 64 * 1024 * 1024

_FIRST_OUTPUT_FACTOR = 8
_MIN_OUTPUT_BYTES = 16 * 1024
_OUTPUT_FULL = "failed to write whole buffer"  # cramjam's message for an output buffer that is too small
_LZ4_LEVEL = 1
_ZSTD_LEVEL = 3
_GZIP_LEVEL = 6

# xerial's framing of snappy, which Java writes: a header of 16 bytes (marker, version 1, compatible with 1), then
# blocks, each a length of 4 bytes and a raw snappy block. librdkafka and others write one raw block.
_XERIAL_HEADER = b"\x82SNAPPY\x00" + b"\x00\x00\x00\x01" * 2
_XERIAL_MARKER = _XERIAL_HEADER[:8]
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = Struct(">i")
_SNAPPY_MAX_RATIO = 22  # the densest element is a copy: 3 bytes for 64


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: Buffer) -> bytes:
    """Compress in the form that every Kafka consumer reads."""
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level=_GZIP_LEVEL))
    if codec is Codec.SNAPPY:
        return _compress_xerial(memoryview(data))
    if codec is Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))
    # the Java consumer reads only independent blocks (KIP-57)
    compressor = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


def decompress(codec: int, data: memoryview, limit: int) -> memoryview:
    """Decompress `data`; InvalidBatch if it is damaged, or larger than `limit` bytes."""
    if codec == Codec.NONE:
        return data
    try:
        if codec == Codec.SNAPPY:
            return _decompress_snappy(data, limit)
        return _decompress_stream(_STREAM_DECODERS[Codec(codec)], data, limit)
    except cramjam.DecompressionError as problem:
        raise InvalidBatch(
            ErrorCode.corrupt_message, f"the compressed records are damaged: {problem}"
        ) from None
    except ValueError:
        raise InvalidBatch(ErrorCode.unsupported_compression_type, f"codec {codec} is unknown") from None


_STREAM_DECODERS: dict[Codec, Callable[[Buffer, Buffer], int]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def _decompress_stream(decode: Callable[[Buffer, Buffer], int], data: memoryview, limit: int) -> memoryview:
    """Decode with an output buffer for a usual ratio; if that is too small, again with larger buffers up to `limit`."""
    size = min(limit, max(_MIN_OUTPUT_BYTES, len(data) * _FIRST_OUTPUT_FACTOR))
    while True:
        output = bytearray(size)
        try:
            return memoryview(output)[: decode(data, output)]
        except cramjam.DecompressionError as problem:
            if _OUTPUT_FULL not in str(problem):
                raise
        if size == limit:
            raise _over_limit(limit)
        size = min(limit, size * _FIRST_OUTPUT_FACTOR)


def _compress_xerial(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for position in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[position : position + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, limit: int) -> memoryview:
    if data[: len(_XERIAL_MARKER)] != _XERIAL_MARKER:
        return memoryview(_decompress_block(data, limit))
    if len(data) < len(_XERIAL_HEADER):
        raise InvalidBatch(ErrorCode.corrupt_message, "the header of the snappy blocks is incomplete")
    output = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(data):
        start = position + _BLOCK_LENGTH.size
        length = _BLOCK_LENGTH.unpack_from(data, position)[0] if start <= len(data) else -1
        if length < 0 or start + length > len(data):
            raise InvalidBatch(ErrorCode.corrupt_message, "a snappy block ends after the data does")
        output += _decompress_block(data[start : start + length], limit - len(output))
        position = start + length
    return memoryview(output)


def _decompress_block(block: memoryview, limit: int) -> bytearray:
    claimed: int = cramjam.snappy.decompress_raw_len(block)
    if claimed > len(block) * _SNAPPY_MAX_RATIO:
        raise InvalidBatch(ErrorCode.corrupt_message, "a snappy block claims more bytes than it can hold")
    if claimed > limit:
        raise _over_limit(limit)
    output = bytearray(claimed)
    cramjam.snappy.decompress_raw_into(block, output)
    return output


def _over_limit(limit: int) -> InvalidBatch:
    return InvalidBatch(ErrorCode.invalid_record, f"the records decompress to more than {limit} bytes")
