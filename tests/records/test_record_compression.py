from __future__ import annotations

import os
import struct
import subprocess
import sys
import textwrap

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ErrorCode, InvalidBatch
from penstock.records.compression import Codec, compress, decompress

REAL_CODECS = [codec for codec in Codec if codec is not Codec.NONE]
LIMIT = 2**20


def refusal(codec: int, data: bytes, limit: int = LIMIT) -> ErrorCode:
    with pytest.raises(InvalidBatch) as caught:
        decompress(codec, memoryview(data), limit)
    return caught.value.code


@pytest.mark.parametrize("codec", Codec)
@given(st.binary(max_size=2_000), st.integers(1, 100))
def test_compressed_data_round_trips(codec: Codec, unit: bytes, times: int) -> None:
    data = unit * times
    assert decompress(codec, memoryview(compress(codec, data)), LIMIT) == data


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_decompression_limit_is_exact(codec: Codec) -> None:
    data = os.urandom(1_000) * 100
    compressed = compress(codec, data)
    assert decompress(codec, memoryview(compressed), len(data)) == data
    assert refusal(codec, compressed, len(data) - 1) is ErrorCode.invalid_record


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_output_far_larger_than_input_is_decoded_whole(codec: Codec) -> None:
    data = bytes(3_000_000)
    assert decompress(codec, memoryview(compress(codec, data)), 2**22) == data


@pytest.mark.parametrize("codec", REAL_CODECS)
@given(st.data())
def test_truncated_compressed_data_is_refused(codec: Codec, data: st.DataObject) -> None:
    compressed = compress(codec, b"some bytes that are compressed" * 50)
    length = data.draw(st.integers(0, len(compressed) - 1))
    if codec is Codec.SNAPPY and length == 16:
        return  # xerial's header with no block after it is a valid, empty stream
    assert refusal(codec, compressed[:length]) is ErrorCode.corrupt_message


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_refused(codec: int) -> None:
    assert refusal(codec, b"data") is ErrorCode.unsupported_compression_type


def test_raw_snappy_is_read_as_librdkafka_writes_it() -> None:
    data = b"raw block" * 10_000
    assert decompress(Codec.SNAPPY, memoryview(bytes(cramjam.snappy.compress_raw(data))), LIMIT) == data


def test_snappy_is_written_in_the_framing_that_java_reads() -> None:
    framed = compress(Codec.SNAPPY, bytes(100_000))
    assert framed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    (length,) = struct.unpack_from(">i", framed, 16)
    assert bytes(cramjam.snappy.decompress_raw(framed[20 : 20 + length])) == bytes(32 * 1024)


def test_lz4_frame_has_independent_blocks_as_java_asks() -> None:
    flags = compress(Codec.LZ4, bytes(200_000))[4]
    assert flags & 0x20


@pytest.mark.parametrize(
    "block", [b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\xff" * 9, b"", b"\xa0\x8d\x06" + bytes(9)]
)
@pytest.mark.parametrize("framed", [True, False])
def test_a_snappy_block_that_claims_much_is_refused(block: bytes, framed: bool) -> None:
    prefix = compress(Codec.SNAPPY, b"") + struct.pack(">i", len(block)) if framed else b""
    assert refusal(Codec.SNAPPY, prefix + block) is ErrorCode.corrupt_message


@pytest.mark.parametrize("length", [-1, -(2**31), 5, 2**31 - 1])
def test_a_xerial_block_outside_the_data_is_refused(length: int) -> None:
    framed = compress(Codec.SNAPPY, b"") + struct.pack(">i", length) + b"\x00"
    assert refusal(Codec.SNAPPY, framed) is ErrorCode.corrupt_message


def test_a_zstd_window_of_gigabytes_is_refused() -> None:
    run = struct.pack("<I", 1 | 1 << 1 | 100_000 << 3)[:3] + b"a"
    frame = struct.pack("<I", 0xFD2FB528) + b"\x00" + bytes([(31 - 10) << 3]) + run
    assert refusal(Codec.ZSTD, frame) is ErrorCode.corrupt_message


BOMBS = """
    import resource, struct, sys
    import cramjam
    from penstock.errors import InvalidBatch
    from penstock.records.compression import Codec, compress, decompress

    MIB = 2**20

    def gzip_bomb():
        compressor = cramjam.gzip.Compressor()
        for _ in range(256):
            compressor.compress(bytes(MIB))
        return bytes(compressor.finish())

    def lz4_bomb():
        compressor = cramjam.lz4.Compressor(block_linked=False)
        for _ in range(256):
            compressor.compress(bytes(MIB))
        return bytes(compressor.finish())

    def lz4_claims_2_gib():
        # version 1, independent blocks, content size, 58 is the checksum; a block of 100 bytes as is, the end
        header = struct.pack("<IBBQB", 0x184D2204, 0x68, 0x70, 2**31, 58)
        return header + struct.pack("<I", 100 | 2**31) + bytes(100) + bytes(4)

    def zstd_bomb():
        run = struct.pack("<I", 1 << 1 | 131072 << 3)[:3] + b"a"
        return struct.pack("<I", 0xFD2FB528) + b"\\x00" + bytes([(27 - 10) << 3]) + run * 8192

    def zstd_claims_1_tib():
        run = struct.pack("<I", 1 | 1 << 1 | 100_000 << 3)[:3] + b"a"
        return struct.pack("<IBQ", 0xFD2FB528, 0xE0, 2**40) + run

    def snappy_bomb():
        block = bytes(cramjam.snappy.compress_raw(bytes(MIB)))
        return compress(Codec.SNAPPY, b"") + (struct.pack(">i", len(block)) + block) * 256

    def snappy_claims_2_gib():
        return b"\\xff\\xff\\xff\\xff\\x07" + bytes(100)

    codec, name = Codec[sys.argv[1]], sys.argv[2]
    bomb = memoryview(globals()[name]())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        decompress(codec, bomb, 32 * MIB)
    except InvalidBatch as refused:
        print(refused.code.value, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize(
    ("codec", "bomb", "code", "mib"),
    [
        (Codec.GZIP, "gzip_bomb", 87, 34),
        (Codec.LZ4, "lz4_bomb", 87, 42),  # and a block of 4 MiB, twice
        (Codec.LZ4, "lz4_claims_2_gib", 2, 4),
        (Codec.ZSTD, "zstd_bomb", 87, 68),  # and a window as large as what came out
        (Codec.ZSTD, "zstd_claims_1_tib", 2, 4),
        (Codec.SNAPPY, "snappy_bomb", 87, 34),
        (Codec.SNAPPY, "snappy_claims_2_gib", 2, 4),
    ],
)
def test_a_bomb_is_refused_within_the_cap_of_32_mib(codec: Codec, bomb: str, code: int, mib: int) -> None:
    script = [sys.executable, "-c", textwrap.dedent(BOMBS), codec.name, bomb]
    seen_code, growth_mib = subprocess.run(script, check=True, capture_output=True, text=True).stdout.split()
    assert int(seen_code) == code
    assert int(growth_mib) <= mib
