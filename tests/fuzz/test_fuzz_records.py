"""Record batches from untrusted clients: every parser returns or raises InvalidBatch, quickly and in little memory."""

from __future__ import annotations

import contextlib
import struct

import pytest
from fuzz_harness import fuzz, mutations
from hypothesis import strategies as st

from penstock.errors import InvalidBatch
from penstock.records.batch import BatchHeader, read_header, write_crc
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec, compress, decompress
from penstock.records.iteration import iterate, read_batches, walk
from penstock.records.validation import check_batch, check_records
from penstock.records.walking import LAYOUT, lay_out, lay_out_in_python

LIMIT = 2**20

records = st.lists(
    st.builds(
        NewRecord,
        key=st.none() | st.binary(max_size=20),
        value=st.none() | st.binary(max_size=200),
        timestamp=st.integers(-1, 2**40),
        headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3).map(
            tuple
        ),
    ),
    min_size=1,
    max_size=10,
)
batches = st.builds(
    lambda drawn, codec: bytes(build_batch(drawn, codec=codec)), records, st.sampled_from(Codec)
)
any_batches = st.binary(max_size=400) | mutations(batches)


def test_random_batches_are_accepted_or_refused() -> None:
    def target(data: bytes) -> None:
        with contextlib.suppress(InvalidBatch):
            check_batch(memoryview(data), max_bytes=LIMIT)

    fuzz(target, any_batches)


def test_random_record_bodies_are_iterated_or_refused() -> None:
    def target(data: bytes) -> None:
        buffer = memoryview(bytearray(data))
        if len(buffer) < 61:
            return
        struct.pack_into(">i", buffer, 8, len(buffer) - 12)
        write_crc(buffer)
        header = read_header(buffer)
        refused = False
        try:
            check_records(buffer, header, max_decompressed_bytes=LIMIT, require_keys=False)
        except InvalidBatch:
            refused = True
        with contextlib.suppress(InvalidBatch):
            for record in iterate(buffer, header, max_decompressed_bytes=LIMIT):
                assert -(2**63) <= record.timestamp < 2**63
            return
        assert refused  # unreadable records must not have passed the check

    fuzz(target, any_batches)


def test_random_headers_are_iterated_or_refused() -> None:
    def target(drawn: tuple[bytes, BatchHeader]) -> None:
        with contextlib.suppress(InvalidBatch):
            list(iterate(memoryview(drawn[0]), drawn[1], max_decompressed_bytes=LIMIT))

    def header(data: bytes) -> BatchHeader:
        return read_header(data)

    headers = st.binary(min_size=61, max_size=61).map(header)
    fuzz(target, st.tuples(any_batches, headers))


def test_random_bodies_are_walked_or_refused() -> None:
    def target(drawn: tuple[bytes, int]) -> None:
        with contextlib.suppress(InvalidBatch):
            list(walk(drawn[0], drawn[1]))

    fuzz(target, st.tuples(st.binary(max_size=200), st.integers(-(2**31), 2**31 - 1)))


def test_layouts_are_equal_and_inside_the_body() -> None:
    def target(drawn: tuple[bytes, int]) -> None:
        found = []
        for implementation in {lay_out, lay_out_in_python}:
            try:
                packed = implementation(drawn[0], 0, drawn[1])
            except ValueError:
                packed = b""
            found.append(packed)
            for layout in LAYOUT.iter_unpack(packed):
                start, end, _, _, *places = layout
                assert 0 <= start < end <= len(drawn[0])
                assert all(place <= end for place in places)
        assert len(set(found)) == 1

    bodies = records.map(lambda drawn: bytes(build_batch(drawn)[61:]))
    fuzz(target, st.tuples(st.binary(max_size=100) | mutations(bodies), st.integers(0, 12)))


def test_random_segments_are_read_or_refused() -> None:
    def target(data: bytes) -> None:
        with contextlib.suppress(InvalidBatch):
            list(read_batches(memoryview(data)))

    fuzz(target, st.lists(any_batches, max_size=3).map(b"".join))


@pytest.mark.parametrize("codec", Codec)
def test_random_compressed_data_is_decompressed_or_refused(codec: Codec) -> None:
    def target(data: bytes) -> None:
        with contextlib.suppress(InvalidBatch):
            assert codec is Codec.NONE or len(decompress(codec, memoryview(data), LIMIT)) <= LIMIT

    plain = st.binary(max_size=200).map(lambda data: data * 20)
    fuzz(target, st.binary(max_size=100) | mutations(plain.map(lambda data: compress(codec, data))))
