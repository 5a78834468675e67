"""Group requests and responses of the raw benchmark driver, read and written by the broker's code."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bench.group_frames import (
    commit_request,
    find_coordinator_request,
    heartbeat_request,
    join_request,
    read_commit,
    read_error,
    read_join,
    read_sync,
    sync_request,
)
from penstock.wire.headers import RequestHeader, decode_request_header
from penstock.wire.messages import decode_request, encode_response_frame

NO_TIME = timedelta()


def decoded(request: bytes) -> object:
    frame = memoryview(request)[4:]
    header, position = decode_request_header(frame)
    return decode_request(header.api_key, header.api_version, frame, position)


def answered(request: bytes, fields: dict[str, object]) -> bytes:
    header, _ = decode_request_header(memoryview(request)[4:])
    frame = encode_response_frame(RequestHeader(header.api_key, header.api_version, 1, "c"), fields)
    return bytes(frame)[4:]


@pytest.mark.parametrize(
    ("request_frame", "fields"),
    [
        (find_coordinator_request(1, "g"), {"key": "g", "key_type": 0}),
        (heartbeat_request(1, "g", 3, "m"), {"group_id": "g", "generation_id": 3, "member_id": "m"}),
        (join_request(1, "g", "m", "t", 1_000, 2_000), {"group_id": "g", "protocol_type": "consumer"}),
        (sync_request(1, "g", 3, "m", "t", {"m": [1, 2]}), {"group_id": "g", "generation_id": 3}),
        (commit_request(1, "g", 3, "m", "t", 4, 5), {"generation_id_or_member_epoch": 3, "member_id": "m"}),
    ],
)
def test_benchmark_group_requests_are_decoded_by_the_broker(
    request_frame: bytes, fields: dict[str, object]
) -> None:
    message = decoded(request_frame)
    assert {name: getattr(message, name) for name in fields} == fields


def test_the_assignment_a_leader_sends_is_the_one_a_member_reads() -> None:
    request = sync_request(1, "g", 3, "m", "t", {"m": [1, 2]})
    (share,) = decoded(request).assignments  # type: ignore[attr-defined]
    fields = {"throttle_time": NO_TIME, "error_code": 0, "assignment": share.assignment}
    found = read_sync(answered(request, fields))
    assert (found.error_code, found.partitions) == (0, (1, 2))


def test_group_responses_are_decoded_by_the_benchmark_driver() -> None:
    joined = read_join(
        answered(
            join_request(1, "g", "m", "t", 1_000, 2_000),
            {
                "throttle_time": NO_TIME,
                "error_code": 79,
                "generation_id": 7,
                "protocol_name": "range",
                "leader": "a",
                "member_id": "b",
                "members": [
                    {"member_id": "a", "group_instance_id": None, "metadata": b"xy"},
                    {"member_id": "b", "group_instance_id": "i", "metadata": b""},
                ],
            },
        )
    )
    assert (joined.error_code, joined.generation, joined.leader, joined.member_id) == (79, 7, "a", "b")
    assert joined.members == ("a", "b")
    beat = answered(heartbeat_request(1, "g", 3, "m"), {"throttle_time": NO_TIME, "error_code": 27})
    assert read_error(beat) == 27
    partitions = [{"partition_index": 4, "error_code": 22}]
    fields = {"throttle_time": NO_TIME, "topics": [{"name": "t", "partitions": partitions}]}
    assert read_commit(answered(commit_request(1, "g", 3, "m", "t", 4, 5), fields)) == 22
