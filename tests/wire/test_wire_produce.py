from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest

from penstock.errors import ErrorCode, ProtocolError
from penstock.model import TopicId
from penstock.wire.headers import RequestHeader, decode_request_header
from penstock.wire.leader_hints import CurrentLeader, NodeEndpoint
from penstock.wire.messages import decode_request, decode_response_frame, encode_request
from penstock.wire.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResult,
    ProduceTopic,
    ProduceTopicResult,
    decode_produce_request,
    encode_produce_response,
)
from penstock.wire.produce_client import decode_produce_response, encode_produce_request
from support.message_samples import random_body

PRODUCE = 0
SCHEMA_VERSIONS = range(3, 14)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def same_id(ours: UUID | None, theirs: UUID | None) -> bool:
    return (ours.int if ours else 0) == (theirs.int if theirs else 0)


def assert_same_request(ours: ProduceRequest, theirs: Any) -> None:
    assert (ours.transactional_id, ours.acks) == (theirs.transactional_id, theirs.acks)
    assert timedelta(milliseconds=ours.timeout_ms) == theirs.timeout
    for topic, their_topic in zip(ours.topics, theirs.topic_data, strict=True):
        assert topic.name == getattr(their_topic, "name", None)
        assert same_id(topic.topic_id, getattr(their_topic, "topic_id", None))
        for partition, their_partition in zip(topic.partitions, their_topic.partition_data, strict=True):
            assert partition.index == their_partition.index
            assert partition.records == their_partition.records


@pytest.mark.parametrize("version", SCHEMA_VERSIONS)
def test_requests_decode_like_the_schema(version: int) -> None:
    random = Random(version)
    for _ in range(50):
        body = memoryview(b"head" + random_body(random, "request", PRODUCE, version))
        ours = decode_produce_request(body, 4, version)
        assert_same_request(ours, decode_request(PRODUCE, version, body, 4))


@pytest.mark.parametrize("version", SCHEMA_VERSIONS)
def test_requests_encode_like_the_schema(version: int) -> None:
    random = Random(version)
    for _ in range(50):
        body = random_body(random, "request", PRODUCE, version)
        request = decode_produce_request(memoryview(body), 0, version)
        frame = memoryview(encode_produce_request(9, version, "me", request))
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        header, position = decode_request_header(frame[4:])
        assert header == RequestHeader(PRODUCE, version, 9, "me")
        assert bytes(frame[4 + position :]) == body


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_requests_decode_too(version: int) -> None:
    body = bytes.fromhex("ffff 00000bb8 00000001 0001 74 00000001 00000003 00000002 abcd".replace(" ", ""))
    topics = [ProduceTopic("t", None, [ProducePartition(3, memoryview(b"\xab\xcd"))])]
    request = decode_produce_request(memoryview(body), 0, version)
    assert request == ProduceRequest(None, -1, 3000, topics)
    assert encode_produce_request(1, version, None, request)[14:] == body


def test_records_are_a_view_of_the_frame_and_can_be_written() -> None:
    request = ProduceRequest(
        None, -1, 1, [ProduceTopic("t", None, [ProducePartition(0, memoryview(b"xxx"))])]
    )
    frame = memoryview(bytearray(encode_produce_request(1, 9, None, request)))[4:]
    _, position = decode_request_header(frame)
    records = decode_produce_request(frame, position, 9).topics[0].partitions[0].records
    assert records is not None
    records[:] = b"abc"
    assert b"abc" in bytes(frame)


RESULTS = [
    ProduceTopicResult(
        "topic",
        TopicId(UUID(int=5)),
        [
            ProduceResult(0, 0, base_offset=2**40, log_append_time_ms=1_700_000_000_000, log_start_offset=5),
            ProduceResult(7, ErrorCode.corrupt_message, error_message="bad"),
            ProduceResult(8, ErrorCode.invalid_record, error_message="no key", invalid_records=(0, 700)),
            ProduceResult(
                9,
                ErrorCode.not_leader_or_follower,
                current_leader=CurrentLeader(leader_id=3, leader_epoch=44),
            ),
        ],
    ),
    ProduceTopicResult("empty", TopicId(UUID(int=6)), []),
]
ENDPOINTS = [NodeEndpoint(3, "host-3", 9092, None), NodeEndpoint(4, "host-4", 9093, "rack")]


def encoded(version: int) -> memoryview:
    frame = memoryview(
        encode_produce_response(77, version, RESULTS, throttle_time_ms=5, node_endpoints=ENDPOINTS)
    )
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 77
    return frame[4:]


@pytest.mark.parametrize("version", SCHEMA_VERSIONS)
def test_responses_encode_like_the_schema(version: int) -> None:
    response = decode_response_frame(PRODUCE, version, encoded(version))
    assert response.throttle_time == timedelta(milliseconds=5)
    for topic, their_topic in zip(RESULTS, response.responses, strict=True):
        assert version >= 13 or topic.name == their_topic.name
        assert version < 13 or topic.topic_id == their_topic.topic_id
        for result, theirs in zip(topic.partitions, their_topic.partition_responses, strict=True):
            assert (result.index, result.error_code) == (theirs.index, theirs.error_code)
            assert result.base_offset == theirs.base_offset
            stamped = result.log_append_time_ms >= 0
            time = EPOCH + timedelta(milliseconds=result.log_append_time_ms) if stamped else None
            assert theirs.log_append_time == time
            assert version < 5 or theirs.log_start_offset == result.log_start_offset
            assert version < 8 or theirs.error_message == result.error_message
            if version >= 8:
                blamed = tuple(each.batch_index for each in theirs.record_errors)
                assert blamed == result.invalid_records
            if version >= 10:
                leader = result.current_leader or CurrentLeader(-1, -1)
                assert (theirs.current_leader.leader_id, theirs.current_leader.leader_epoch) == leader
    if version >= 10:
        endpoints = [
            NodeEndpoint(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints
        ]
        assert endpoints == ENDPOINTS


@pytest.mark.parametrize("version", range(14))
def test_client_decodes_server_responses(version: int) -> None:
    response = decode_produce_response(encoded(version), version)
    assert response.throttle_time_ms == (5 if version >= 1 else 0)
    assert response.node_endpoints == (ENDPOINTS if version >= 10 else [])
    for topic, ours in zip(RESULTS, response.topics, strict=True):
        assert ours.name == (topic.name if version < 13 else None)
        assert ours.topic_id == (topic.topic_id if version >= 13 else None)
        for result, read in zip(topic.partitions, ours.partitions, strict=True):
            assert (read.index, read.error_code, read.base_offset) == (
                result.index,
                result.error_code,
                result.base_offset,
            )
            assert read.log_append_time_ms == (result.log_append_time_ms if version >= 2 else -1)
            assert read.log_start_offset == (result.log_start_offset if version >= 5 else -1)
            assert read.error_message == (result.error_message if version >= 8 else None)
            assert read.invalid_records == (result.invalid_records if version >= 8 else ())
            assert read.current_leader == (result.current_leader if version >= 10 else None)


def test_oldest_response_has_no_throttle_time() -> None:
    frame = encode_produce_response(1, 0, [ProduceTopicResult("t", None, [ProduceResult(3, 2)])])
    body = "00000001 00000001 0001 74 00000001 00000003 0002 ffffffffffffffff"
    assert frame[4:].hex() == body.replace(" ", "")


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (3, b""),
        (3, b"\xff\xff\xff\xff\x00\x00\x00\x01\x7f\xff\xff\xff"),
        (3, b"\xff\xff\xff\xff\x00\x00\x00\x01\xff\xff\xff\xff"),  # null topics
        (9, b"\x00\xff\xff\x00\x00\x00\x01\x00\x00"),  # null topics
        (9, b"\x00\xff\xff\x00\x00\x00\x01\xff\xff\xff\xff\x0f" + bytes(50)),
        (9, b"\x00\xff\xff\x00\x00\x00\x01\x02\x02t\x02\x00\x00\x00\x00\x0aabc\x00\x00\x00"),
        (9, b"\x00\xff\xff\x00\x00\x00\x01\x01"),  # no tags
    ],
)
def test_a_malformed_request_is_refused(version: int, body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_produce_request(memoryview(body), 0, version)


def test_a_request_of_very_many_partitions_is_refused() -> None:
    partitions = [{"index": 0, "records": None}] * 100_001
    body = encode_request(
        PRODUCE, 9, {"acks": 1, "topic_data": [{"name": "t", "partition_data": partitions}]}
    )
    with pytest.raises(ProtocolError):
        decode_produce_request(memoryview(body), 0, 9)
