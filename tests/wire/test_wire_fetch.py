from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest

from penstock.errors import ErrorCode, ProtocolError
from penstock.model import TopicId
from penstock.records.log_slice import EMPTY_SLICE, LogSlice
from penstock.wire.fetch import (
    AbortedTransaction,
    DivergingEpoch,
    FetchPartition,
    FetchRequest,
    FetchResult,
    FetchTopic,
    FetchTopicResult,
    ForgottenTopic,
    decode_fetch_request,
    encode_fetch_response,
)
from penstock.wire.fetch_client import decode_fetch_response, encode_fetch_request
from penstock.wire.headers import RequestHeader, decode_request_header
from penstock.wire.leader_hints import CurrentLeader, NodeEndpoint
from penstock.wire.messages import decode_request, decode_response_frame, encode_request
from support.message_samples import random_body

FETCH = 1
SCHEMA_VERSIONS = range(4, 19)


def same_id(ours: UUID | None, theirs: UUID | None) -> bool:
    return (ours.int if ours else 0) == (theirs.int if theirs else 0)


def assert_same_request(ours: FetchRequest, theirs: Any, version: int) -> None:
    assert timedelta(milliseconds=ours.max_wait_ms) == theirs.max_wait
    for name in ("min_bytes", "max_bytes", "isolation_level", "session_id", "session_epoch", "rack_id"):
        assert getattr(ours, name) == getattr(theirs, name, getattr(ours, name))
    assert ours.cluster_id == getattr(theirs, "cluster_id", None)
    replica = theirs if version < 15 else theirs.replica_state
    assert ours.replica_id == replica.replica_id
    assert ours.replica_epoch == getattr(replica, "replica_epoch", -1)
    assert ours.uses_topic_ids == (version >= 13)
    for topic, their_topic in zip(ours.topics, theirs.topics, strict=True):
        assert topic.name == getattr(their_topic, "topic", None)
        assert same_id(topic.topic_id, getattr(their_topic, "topic_id", None))
        for partition, their_partition in zip(topic.partitions, their_topic.partitions, strict=True):
            assert partition.max_bytes == their_partition.partition_max_bytes
            for name in (field.name for field in fields(FetchPartition)):
                if name != "max_bytes":
                    assert getattr(partition, name) == getattr(
                        their_partition, name, getattr(FetchPartition(0, 0, 0), name)
                    )
    their_forgotten = getattr(theirs, "forgotten_topics_data", ())
    for forgotten, their_topic in zip(ours.forgotten, their_forgotten, strict=True):
        assert forgotten.name == getattr(their_topic, "topic", None)
        assert same_id(forgotten.topic_id, getattr(their_topic, "topic_id", None))
        assert tuple(forgotten.partitions) == their_topic.partitions


@pytest.mark.parametrize("version", SCHEMA_VERSIONS)
def test_requests_decode_like_the_schema(version: int) -> None:
    random = Random(version)
    for _ in range(50):
        body = memoryview(b"head" + random_body(random, "request", FETCH, version))
        ours = decode_fetch_request(body, 4, version)
        assert_same_request(ours, decode_request(FETCH, version, body, 4), version)


@pytest.mark.parametrize("version", SCHEMA_VERSIONS)
def test_requests_encode_like_the_schema(version: int) -> None:
    random = Random(version)
    for _ in range(50):
        request = decode_fetch_request(memoryview(random_body(random, "request", FETCH, version)), 0, version)
        request.replica_id = abs(request.replica_id)
        frame = memoryview(encode_fetch_request(9, version, "me", request))
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        header, position = decode_request_header(frame[4:])
        assert header == RequestHeader(FETCH, version, 9, "me")
        assert_same_request(request, decode_request(FETCH, version, frame[4:], position), version)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_requests_decode_too(version: int) -> None:
    max_bytes = "" if version < 3 else "00010000"
    partition = "00000003 0000000000000009 00001000"
    body = bytes.fromhex(
        f"ffffffff 000001f4 00000001 {max_bytes} 00000001 0001 74 00000001 {partition}".replace(" ", "")
    )
    topics = [FetchTopic("t", None, [FetchPartition(3, 9, 4096)])]
    request = decode_fetch_request(memoryview(body), 0, version)
    assert request == FetchRequest(500, 1, topics, [], max_bytes=65536 if version == 3 else 2**31 - 1)
    assert encode_fetch_request(1, version, None, request)[14:] == body


@pytest.mark.parametrize("flushed_offset", [-1, 7])
def test_follower_reports_damage_to_the_leader(flushed_offset: int) -> None:
    asked = FetchPartition(3, 9, 4096, flushed_offset=flushed_offset, is_damaged=True)
    request = FetchRequest(500, 1, [FetchTopic(None, TopicId(UUID(int=5)), [asked])], [], uses_topic_ids=True)
    frame = memoryview(encode_fetch_request(1, 16, None, request))[4:]
    _, position = decode_request_header(frame)
    assert decode_fetch_request(frame, position, 16).topics == request.topics


RESULTS = [
    FetchTopicResult(
        "topic",
        TopicId(UUID(int=5)),
        [
            FetchResult(
                0, high_watermark=2**40, last_stable_offset=90, log_start_offset=5, records=b"records" * 100
            ),
            FetchResult(1, ErrorCode.offset_out_of_range),
            FetchResult(2, aborted_transactions=[AbortedTransaction(7, 8)], records=memoryview(b"more")),
            FetchResult(3, aborted_transactions=[], diverging_epoch=(4, 44), preferred_read_replica=2),
            FetchResult(4, ErrorCode.not_leader_or_follower, current_leader=CurrentLeader(3, 9)),
        ],
    ),
    FetchTopicResult("last", TopicId(UUID(int=6)), [FetchResult(0, records=b"at the end")]),
]
ENDPOINTS = [NodeEndpoint(3, "host-3", 9092, "rack")]


def encoded(version: int, results: list[FetchTopicResult]) -> memoryview:
    parts = encode_fetch_response(
        77,
        version,
        topics=results,
        error_code=ErrorCode.none,
        session_id=12,
        throttle_time_ms=5,
        node_endpoints=ENDPOINTS,
    )
    frame = memoryview(b"".join(bytes(part) for part in parts if not isinstance(part, LogSlice)))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 77
    return frame[4:]


@pytest.mark.parametrize("version", SCHEMA_VERSIONS)
def test_responses_encode_like_the_schema(version: int) -> None:
    response = decode_response_frame(FETCH, version, encoded(version, RESULTS))
    assert response.throttle_time == timedelta(milliseconds=5)
    assert getattr(response, "session_id", 12) == 12
    for topic, their_topic in zip(RESULTS, response.responses, strict=True):
        assert version >= 13 or topic.name == their_topic.topic
        assert version < 13 or topic.topic_id == their_topic.topic_id
        for result, theirs in zip(topic.partitions, their_topic.partitions, strict=True):
            assert (result.partition, result.error_code) == (theirs.partition_index, theirs.error_code)
            assert (result.high_watermark, result.last_stable_offset) == (
                theirs.high_watermark,
                theirs.last_stable_offset,
            )
            assert version < 5 or result.log_start_offset == theirs.log_start_offset
            aborted = theirs.aborted_transactions
            assert result.aborted_transactions == (
                None
                if aborted is None
                else [AbortedTransaction(a.producer_id, a.first_offset) for a in aborted]
            )
            assert version < 11 or result.preferred_read_replica == theirs.preferred_read_replica
            assert bytes(result.records) == theirs.records  # type: ignore[arg-type]
            if version >= 12:
                epoch, leader = theirs.diverging_epoch, theirs.current_leader
                assert (result.diverging_epoch or (-1, -1)) == (epoch.epoch, epoch.end_offset)
                assert (result.current_leader or (-1, -1)) == (leader.leader_id, leader.leader_epoch)
    if version >= 16:
        assert [NodeEndpoint(e.node_id, e.host, e.port, e.rack) for e in response.node_endpoints] == ENDPOINTS


@pytest.mark.parametrize("version", range(19))
def test_client_decodes_server_responses(version: int) -> None:
    response = decode_fetch_response(encoded(version, RESULTS), version)
    assert response.throttle_time_ms == (5 if version >= 1 else 0)
    assert response.session_id == (12 if version >= 7 else 0)
    assert response.node_endpoints == (ENDPOINTS if version >= 16 else [])
    for topic, ours in zip(RESULTS, response.topics, strict=True):
        assert ours.name == (topic.name if version < 13 else None)
        assert ours.topic_id == (topic.topic_id if version >= 13 else None)
        for result, read in zip(topic.partitions, ours.partitions, strict=True):
            assert (read.partition, read.error_code) == (result.partition, result.error_code)
            assert read.high_watermark == result.high_watermark
            assert read.last_stable_offset == (result.last_stable_offset if version >= 4 else -1)
            assert read.log_start_offset == (result.log_start_offset if version >= 5 else -1)
            assert read.aborted_transactions == (result.aborted_transactions if version >= 4 else None)
            assert read.preferred_read_replica == (result.preferred_read_replica if version >= 11 else -1)
            assert read.records == result.records
            assert read.diverging_epoch == (result.diverging_epoch if version >= 12 else None)
            assert read.current_leader == (result.current_leader if version >= 12 else None)


def test_records_are_passed_unchanged_and_counted_in_the_size() -> None:
    first, second = LogSlice(EMPTY_SLICE.file, 100, 5000), LogSlice(EMPTY_SLICE.file, 0, 7)
    results = [FetchTopicResult("t", None, [FetchResult(0, records=first), FetchResult(1, records=second)])]
    for version in range(13):
        parts = encode_fetch_response(1, version, topics=results)
        assert [part for part in parts if isinstance(part, LogSlice)] == [first, second]
        assert int.from_bytes(bytes(parts[0])[:4], "big") == sum(map(len, parts)) - 4  # type: ignore[arg-type]
        assert all(map(len, parts))


def test_empty_slice_adds_no_part() -> None:
    parts = encode_fetch_response(
        1, 12, topics=[FetchTopicResult("t", None, [FetchResult(0, records=EMPTY_SLICE)])]
    )
    assert len(parts) == 1


def test_forgotten_topics_and_divergence_are_decoded() -> None:
    request = FetchRequest(1, 1, [], [ForgottenTopic("gone", None, [1, 2])])
    frame = memoryview(encode_fetch_request(1, 11, None, request))[4:]
    _, position = decode_request_header(frame)
    assert decode_fetch_request(frame, position, 11).forgotten[0].partitions == [1, 2]
    answer = decode_fetch_response(encoded(12, RESULTS), 12)
    assert answer.topics[0].partitions[3].diverging_epoch == DivergingEpoch(epoch=4, end_offset=44)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (4, b""),
        (4, bytes(17) + b"\x7f\xff\xff\xff"),
        (4, bytes(17) + b"\xff\xff\xff\xff"),
        (15, bytes(21) + b"\x00"),  # null topics
        (15, bytes(21) + b"\xff\xff\xff\xff\x0f" + bytes(99)),
        (15, bytes(21) + b"\x01\x01\x01\x01\x01\x0c" + bytes(12)),  # a replica state that is a byte too short
        (15, bytes(21) + b"\x01\x01\x01\x02\x01\x0d" + bytes(13) + b"\x01\x0d" + bytes(13)),  # it comes twice
        (15, bytes(21) + b"\x01\x01\x01"),  # no tags
        (15, bytes(21) + b"\x01\x01\x00\x00"),  # a null rack
    ],
)
def test_a_malformed_request_is_refused(version: int, body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_fetch_request(memoryview(body), 0, version)


def test_malformed_samples_are_near_a_valid_request() -> None:
    good = bytes(21) + b"\x01\x01\x01\x01\x01\x0d" + b"\x00\x00\x00\x05" + bytes(9)
    assert decode_fetch_request(memoryview(good), 0, 15).replica_id == 5


def test_a_request_of_very_many_partitions_is_refused() -> None:
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}] * 100_001
    body = encode_request(FETCH, 12, {"topics": [{"topic": "t", "partitions": partitions}]})
    with pytest.raises(ProtocolError):
        decode_fetch_request(memoryview(body), 0, 12)
