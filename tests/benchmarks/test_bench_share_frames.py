"""The hand-packed frames of share group members: read as a broker reads them."""

from __future__ import annotations

from uuid import UUID

from bench.share_frames import heartbeat_request, read_share_fetch, share_fetch_request
from penstock.wire.framing import SIZE_PREFIX
from penstock.wire.headers import read_request_header
from penstock.wire.share_fetch import ShareResult, decode_share_fetch, encode_share_fetch

TOPIC_ID = UUID(int=7)


def test_benchmark_share_fetch_is_decoded_by_the_broker() -> None:
    acks = {3: [(5, 6), (9, 9)], 200: []}
    frame = memoryview(share_fetch_request(1, "group", "m" * 36, 4, TOPIC_ID, acks, 2, 500))[SIZE_PREFIX:]
    *header, position = read_request_header(frame)
    assert header == [78, 2, 1, "bench"]
    asked = decode_share_fetch(frame, position, 2)
    assert (asked.group_id, asked.member_id, asked.epoch) == ("group", "m" * 36, 4)
    assert (asked.max_records, asked.max_wait_ms, asked.acquire_mode) == (2, 500, 1)
    assert asked.partitions == [(TOPIC_ID, 3, [(5, 6, b"\x01"), (9, 9, b"\x01")]), (TOPIC_ID, 200, [])]


def test_heartbeat_joins_and_subscribes() -> None:
    frame = memoryview(heartbeat_request(1, "group", "member", "orders"))[SIZE_PREFIX:]
    *header, position = read_request_header(frame)
    assert header == [76, 1, 1, "bench"]
    assert bytes(frame[position:]).endswith(b"\x07orders\x00")


def test_share_responses_are_decoded_by_the_benchmark_driver() -> None:
    results = [
        ShareResult(TOPIC_ID, 3, acquired=[(5, 6, 1)]),
        ShareResult(TOPIC_ID, 4, error_code=6, acknowledge_error_code=121, error_message="moved"),
    ]
    parts = encode_share_fetch(1, 2, results, 30_000)
    body = b"".join(bytes(part) for part in parts if isinstance(part, bytes | bytearray))[SIZE_PREFIX:]
    answer = read_share_fetch(body)
    assert answer == (0, [(3, 5, 6)], [6, 121])
