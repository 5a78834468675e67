from __future__ import annotations

import io
import subprocess
import sys
import time
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.serial import entity_reader, entity_writer

from penstock.errors import ErrorCode, ProtocolError
from penstock.wire.headers import RequestHeader, decode_request_header
from penstock.wire.messages import (
    decode_request,
    decode_response,
    decode_response_frame,
    encode_request,
    encode_request_frame,
    encode_response,
    encode_response_frame,
)
from penstock.wire.schema import Direction, load_entity
from support.message_samples import ALL_VERSIONS, random_body, random_message

METADATA, API_VERSIONS, CREATE_TOPICS, DESCRIBE_TOPIC_PARTITIONS = 3, 18, 19, 75


def written_by_kio(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


@pytest.mark.parametrize("direction", ["request", "response"])
def test_every_message_version_matches_kio(direction: Direction) -> None:
    random = Random(20)
    decode = decode_request if direction == "request" else decode_response
    for api_key, version in ALL_VERSIONS:
        for _ in range(3):
            body = random_body(random, direction, api_key, version)
            message = decode(api_key, version, memoryview(body), 0)
            entity: Any = load_entity(direction, api_key, version)
            by_kio, _ = entity_reader(entity)(body, 0)
            assert message == by_kio
            assert written_by_kio(message) == body


def test_missing_fields_get_their_defaults() -> None:
    body = encode_request(CREATE_TOPICS, 7, {"topics": [{"name": "t"}]})
    message = decode_request(CREATE_TOPICS, 7, memoryview(body), 0)
    assert message.timeout == timedelta(seconds=60)
    assert message.topics[0].num_partitions == 0
    assert message.topics[0].configs == ()
    assert decode_response(METADATA, 12, memoryview(encode_response(METADATA, 12, {})), 0).controller_id == -1


def test_one_mapping_serves_all_versions() -> None:
    topic = {
        "error_code": ErrorCode.none,
        "name": "t",
        "topic_id": UUID(int=5),
        "partitions": [{"partition_index": 3, "leader_id": 1, "leader_epoch": 7, "replica_nodes": [1, 2]}],
    }
    fields = {"brokers": [{"node_id": 1, "host": "h", "port": 9, "rack": "r"}], "topics": [topic]}
    for version in range(14):
        message = decode_response(
            METADATA, version, memoryview(encode_response(METADATA, version, fields)), 0
        )
        assert message.brokers[0].port == 9
        assert message.topics[0].partitions[0].replica_nodes == (1, 2)
    assert message.topics[0].topic_id == UUID(int=5)
    assert message.topics[0].partitions[0].leader_epoch == 7


@pytest.mark.parametrize("version", [0, 12])
def test_unknown_field_name_raises_type_error(version: int) -> None:
    with pytest.raises(TypeError, match=r"response of api key 3 has broker$"):
        encode_response(METADATA, version, {"broker": []})
    with pytest.raises(TypeError, match=r"topics\.partitions has leader$"):
        encode_response(METADATA, version, {"topics": [{"partitions": [{"leader": 1}]}]})


def test_durations_may_be_milliseconds() -> None:
    as_int = encode_response(METADATA, 3, {"throttle_time": 1500})
    assert as_int == encode_response(METADATA, 3, {"throttle_time": timedelta(seconds=1.5)})
    assert as_int[:4] == b"\x00\x00\x05\xdc"


def test_a_nullable_structure_is_marked() -> None:
    for cursor in (None, {"topic_name": "t", "partition_index": 4}):
        body = encode_request(DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [], "cursor": cursor})
        message = decode_request(DESCRIBE_TOPIC_PARTITIONS, 0, memoryview(body), 0)
        assert (message.cursor is None) == (cursor is None)
    with pytest.raises(ProtocolError):
        decode_request(DESCRIBE_TOPIC_PARTITIONS, 0, memoryview(b"\x01\x00\x00\x00\x01\x02\x00"), 0)


def test_client_and_server_frames_match() -> None:
    frame = memoryview(encode_request_frame(METADATA, 12, 77, "me", {"topics": None}))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, position = decode_request_header(frame[4:])
    assert header == RequestHeader(METADATA, 12, 77, "me")
    assert decode_request(METADATA, 12, frame[4:], position).topics is None
    answer = memoryview(encode_response_frame(header, {"cluster_id": "c"}))
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    assert int.from_bytes(answer[4:8], "big") == 77
    assert decode_response_frame(METADATA, 12, answer[4:]).cluster_id == "c"


def test_unknown_error_code_becomes_unknown_server_error() -> None:
    body = bytearray(encode_response(API_VERSIONS, 0, {"error_code": 0}))
    body[:2] = b"\x7f\x00"
    message = decode_response(API_VERSIONS, 0, memoryview(body), 0)
    assert message.error_code is ErrorCode.unknown_server_error


def test_a_version_without_schema_is_refused() -> None:
    for api_key, version in ((METADATA, 99), (METADATA, -1), (4, 0)):
        with pytest.raises(ProtocolError):
            decode_request(api_key, version, memoryview(b""), 0)


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


NULL_TOPICS = b"\x00\x01\x00\x00"  # Metadata 9: no topics, three booleans; tags follow


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (1, b""),
        (1, b"\x7f\xff\xff\xff"),  # 2**31 - 1 elements
        (1, b"\x7f\xff\xff\xff" + bytes(200)),
        (1, b"\xff\xff\xff\xfe"),  # -2 elements
        (0, b"\xff\xff\xff\xff"),  # null where version 0 has none
        (1, b"\x00\x00\x00\x01\xff\xff"),  # a null name
        (1, b"\x00\x00\x00\x01\xff\xfb"),
        (1, b"\x00\x00\x00\x01\x00\x64abc"),
        (1, b"\x00\x00\x00\x01\x00\x03\xff\xfe\xfd"),
        (9, b"\xff\xff\xff\xff\x0f" + bytes(20)),  # 2**32 - 2 elements
        (9, b"\xff\xff\xff\xff\x7f" + bytes(20)),  # 35 bits
        (9, b"\x80\x80\x80\x80\x80\x01" + bytes(20)),  # 6 bytes
        (9, b"\x80" * 100),
        (9, b"\x02\x00" + NULL_TOPICS),  # a null name
        (9, b"\x02\xff\xff\xff\xff\x0f" + bytes(20)),
        (9, NULL_TOPICS),  # ends before the tags
        (9, NULL_TOPICS + varint(2**32 - 1) + bytes(20)),
        (9, NULL_TOPICS + b"\x02\x05\x00\x05\x00"),  # a tag twice
        (9, NULL_TOPICS + b"\x02\x05\x00\x04\x00"),  # decreasing tags
        (9, NULL_TOPICS + b"\x01\x05" + varint(1000) + b"a"),
        (9, NULL_TOPICS + b"\x01\x05" + varint(2**32 - 1) + b"a"),
        (1, b"\x00\x0f\x42\x40" + bytes(2 * 10**6)),  # 10**6 topics of two bytes each
    ],
)
def test_hostile_bytes_are_refused_quickly(version: int, body: bytes) -> None:
    expect_quick_refusal(version, body)


def test_a_million_tags_are_refused_quickly() -> None:
    tags = b"".join(varint(i) + b"\x00" for i in range(10**6))
    expect_quick_refusal(9, NULL_TOPICS + varint(10**6) + tags)


def expect_quick_refusal(version: int, body: bytes) -> None:
    start = time.thread_time()
    with pytest.raises(ProtocolError):
        decode_request(METADATA, version, memoryview(body), 0)
    assert time.thread_time() - start < 0.2


@pytest.mark.parametrize(("version", "body"), [(1, bytes(4)), (9, NULL_TOPICS + b"\x00")])
def test_bytes_after_the_message_are_ignored(version: int, body: bytes) -> None:
    message = decode_request(METADATA, version, memoryview(body), 0)
    assert decode_request(METADATA, version, memoryview(body + b"\x00\x01\x02"), 0) == message


def test_unknown_tags_are_skipped() -> None:
    decode_request(METADATA, 9, memoryview(NULL_TOPICS + b"\x02\x00\x01a\x63\x02bc"), 0)


@pytest.mark.parametrize(
    "tags",
    [
        b"\x01\x00\x02\x03ab",  # announces two bytes, takes three
        b"\x01\x00\x04\x03ab\x00",
        b"\x02\x00\x03\x03ab\x00\x03\x03ab",
    ],
)
def test_known_tag_must_match_its_length_and_come_once(tags: bytes) -> None:
    fetch = bytes.fromhex("00000001 00000001 00000001 00 00000000 ffffffff 01 01 01".replace(" ", ""))
    assert decode_request(1, 15, memoryview(fetch + b"\x01\x00\x03\x03ab"), 0).cluster_id == "ab"
    with pytest.raises(ProtocolError):
        decode_request(1, 15, memoryview(fetch + tags), 0)


def test_ten_thousand_partitions_are_encoded_quickly() -> None:
    partition = {
        "partition_index": 1,
        "leader_id": 1,
        "leader_epoch": 0,
        "replica_nodes": [1],
        "isr_nodes": [1],
    }
    fields = {"topics": [{"name": "t", "partitions": [partition] * 10_000}]}
    encode_response(METADATA, 12, {})
    start = time.thread_time()
    encode_response(METADATA, 12, fields)
    assert time.thread_time() - start < 0.2


def test_random_messages_differ() -> None:
    random = Random(1)
    assert random_message(random, "request", METADATA, 12) != random_message(random, "request", METADATA, 12)


@pytest.mark.usefixtures("starts_processes")
def test_message_modules_are_loaded_on_demand() -> None:
    script = """
import sys, penstock.wire.messages, penstock.wire.produce, penstock.wire.fetch
assert "kio.serial" not in sys.modules
print(sum(name.startswith("kio.schema.") and name.count(".") > 2 for name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert int(done.stdout) <= 12  # the headers, in their few versions
