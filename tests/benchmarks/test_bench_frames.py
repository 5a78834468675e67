"""Frames of the raw benchmark driver, read and written by the broker's code."""

from __future__ import annotations

import struct

from bench.frames import (
    api_versions_request,
    one_record_batch,
    produce_request,
    read_fetch,
    read_produce,
    record_batch,
)
from penstock.records.iteration import iterate
from penstock.records.validation import check_batch
from penstock.wire.headers import decode_request_header


def test_the_batch_is_one_record_that_a_broker_accepts() -> None:
    batch = memoryview(bytearray(one_record_batch(b"value", 1_700_000_000_000)))
    header = check_batch(batch, max_bytes=10_000)
    (record,) = iterate(batch, header)
    assert (record.key, record.value, record.timestamp) == (None, b"value", 1_700_000_000_000)


def test_benchmark_request_headers_are_decoded_by_the_broker() -> None:
    for request, api_key, version in (
        (api_versions_request(7), 18, 0),
        (produce_request(7, "t", 0, b""), 0, 7),
    ):
        (length,) = struct.unpack_from(">i", request)
        assert length == len(request) - 4
        header, _ = decode_request_header(memoryview(request)[4:])
        found = (header.api_key, header.api_version, header.correlation_id, header.client_id)
        assert found == (api_key, version, 7, "bench")


def test_produce_and_fetch_responses_are_decoded() -> None:
    topic = struct.pack(">iih", 1, 1, 1) + b"t"
    produced = topic + struct.pack(">iihqqqi", 1, 0, 3, 42, -1, 0, 0)
    answer = read_produce(produced)
    assert (answer.error_code, answer.base_offset) == (3, 42)
    fetched = struct.pack(">ii", 1, 0) + topic[4:] + struct.pack(">iihqqii", 1, 0, 0, 9, 9, -1, 5) + b"12345"
    found = read_fetch(fetched)
    assert (found.error_code, found.high_watermark, found.record_bytes) == (0, 9, 5)


def test_batch_of_several_records_is_valid() -> None:
    values = [b"first", b"x" * 1_000, b""]
    batch = memoryview(bytearray(record_batch(values, 1_700_000_000_000)))
    header = check_batch(batch, max_bytes=10_000)
    assert [record.value for record in iterate(batch, header)] == values
