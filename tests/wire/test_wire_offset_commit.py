"""The OffsetCommit codec by hand matches the schema."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ErrorCode, ProtocolError
from penstock.model import TopicId
from penstock.wire.framing import SIZE_PREFIX
from penstock.wire.headers import RequestHeader
from penstock.wire.messages import decode_response_frame, encode_request, encode_response_frame
from penstock.wire.offset_commit import (
    CommitPartition,
    CommitTopic,
    decode_offset_commit_request,
    encode_offset_commit_response,
    read_any_commit,
    read_plain_commit,
)

OFFSET_COMMIT = 8
VERSIONS = range(2, 11)
FIRST_WITH_LEADER_EPOCH, FIRST_WITH_INSTANCE, FIRST_BY_ID = 6, 7, 10
IDS = {"orders": UUID(int=7), "zahlungsverkehr-ü": UUID(int=8)}


def fields() -> dict[str, Any]:
    return {
        "group_id": "grüppe",
        "generation_id_or_member_epoch": 7,
        "member_id": "m" * 200,
        "group_instance_id": "here",
        "retention_time": -1,
        "topics": [
            {
                "name": name,
                "topic_id": topic_id,
                "partitions": [
                    {
                        "partition_index": index,
                        "committed_offset": 2**40 + index,
                        "committed_leader_epoch": 5,
                        "committed_metadata": metadata,
                    }
                    for index, metadata in enumerate(["", None, "x" * 300])
                ],
            }
            for name, topic_id in IDS.items()
        ],
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_offset_commit_codec_decodes_what_the_schema_encodes(version: int) -> None:
    body = encode_request(OFFSET_COMMIT, version, fields())
    request = decode_offset_commit_request(memoryview(b"head" + body + b"behind"), 4, version)
    assert (request.group_id, request.generation, request.member_id) == ("grüppe", 7, "m" * 200)
    assert request.instance_id == ("here" if version >= FIRST_WITH_INSTANCE else None)
    by_id = version >= FIRST_BY_ID
    assert [topic.topic_id if by_id else topic.name for topic in request.topics] == list(
        IDS.values() if by_id else IDS
    )
    epoch = 5 if version >= FIRST_WITH_LEADER_EPOCH else -1
    for topic in request.topics:
        assert topic.partitions == [
            (0, 2**40, epoch, ""),
            (1, 2**40 + 1, epoch, None),
            (2, 2**40 + 2, epoch, "x" * 300),
        ]


@pytest.mark.parametrize("version", VERSIONS)
def test_offset_commit_codec_encodes_what_the_schema_decodes(version: int) -> None:
    body = encode_request(OFFSET_COMMIT, version, fields())
    topics = decode_offset_commit_request(memoryview(body), 0, version).topics
    codes: list[list[int]] = [
        [0, ErrorCode.illegal_generation, 0],
        [ErrorCode.unknown_topic_or_partition] * 3,
    ]
    told_alone: list[list[int | None]] = [[None, ErrorCode.illegal_generation, None], [*codes[1]]]
    frame = encode_offset_commit_response(99, version, topics, told_alone, ErrorCode.none)
    assert int.from_bytes(frame[:SIZE_PREFIX], "big") == len(frame) - SIZE_PREFIX
    assert int.from_bytes(frame[SIZE_PREFIX : SIZE_PREFIX + 4], "big") == 99
    answer = decode_response_frame(OFFSET_COMMIT, version, memoryview(frame)[SIZE_PREFIX:])
    told = [[partition.error_code for partition in topic.partitions] for topic in answer.topics]
    assert told == codes
    assert [partition.partition_index for partition in answer.topics[1].partitions] == [0, 1, 2]
    by_id = version >= FIRST_BY_ID
    assert [topic.topic_id if by_id else topic.name for topic in answer.topics] == list(
        IDS.values() if by_id else IDS
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("code", [None, ErrorCode.none, ErrorCode.illegal_generation])
def test_encodes_the_response_for_one_partition_as_the_schema_does(
    version: int, code: ErrorCode | None
) -> None:
    topics = [CommitTopic("orders", TopicId(IDS["orders"]), [CommitPartition(7, 5, -1, None)])]
    frame = encode_offset_commit_response(99, version, topics, [[code]], ErrorCode.unknown_member_id)
    shown = ErrorCode.unknown_member_id if code is None else code
    key = {"topic_id": IDS["orders"]} if version >= FIRST_BY_ID else {"name": "orders"}
    partitions = [{"partition_index": 7, "error_code": shown}]
    fields = {"throttle_time": 0, "topics": [{**key, "partitions": partitions}]}
    assert frame == encode_response_frame(RequestHeader(OFFSET_COMMIT, version, 99, None), fields)


@pytest.mark.parametrize("version", VERSIONS)
def test_refuses_every_truncated_request(version: int) -> None:
    body = encode_request(OFFSET_COMMIT, version, fields())
    for end in range(len(body)):
        with pytest.raises(ProtocolError):
            decode_offset_commit_request(memoryview(body[:end]), 0, version)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
INT32 = st.integers(-(2**31), 2**31 - 1)
PARTITIONS = st.fixed_dictionaries(
    {
        "partition_index": INT32,
        "committed_offset": st.integers(-(2**63), 2**63 - 1),
        "committed_leader_epoch": INT32,
        "committed_metadata": st.none() | TEXTS | st.just("x" * 200),
    }
)


def requests(topics: int, partitions: int) -> st.SearchStrategy[dict[str, Any]]:
    """Requests with at most this many topics, and partitions of each."""
    topic = st.fixed_dictionaries(
        {
            "name": TEXTS,
            "topic_id": st.uuids(),
            "partitions": st.lists(PARTITIONS, min_size=min(1, partitions), max_size=partitions),
        }
    )
    return st.fixed_dictionaries(
        {
            "group_id": TEXTS | st.just("g" * 130),
            "generation_id_or_member_epoch": INT32,
            "member_id": TEXTS | st.just("m" * 130),
            "group_instance_id": st.none() | TEXTS,
            "retention_time": st.just(-1),
            "topics": st.lists(topic, min_size=min(1, topics), max_size=topics),
        }
    )


@given(st.sampled_from(VERSIONS), requests(2, 2), st.binary(max_size=3))
def test_plain_decoder_agrees_with_the_general_one(
    version: int, asked: dict[str, Any], behind: bytes
) -> None:
    frame = memoryview(b"head" + encode_request(OFFSET_COMMIT, version, asked) + behind)
    plain = read_plain_commit(frame, 4, version)
    assert plain is None or plain == read_any_commit(frame, 4, version)


@given(st.sampled_from(VERSIONS), requests(1, 1), st.integers(0, 400), st.binary(min_size=1, max_size=4))
def test_plain_decoder_accepts_no_damaged_request_that_the_general_one_refuses(
    version: int, asked: dict[str, Any], place: int, damage: bytes
) -> None:
    body = bytearray(encode_request(OFFSET_COMMIT, version, asked))
    place %= len(body)
    body[place : place + len(damage)] = damage
    for frame in (memoryview(body), memoryview(body)[:place]):
        plain = read_plain_commit(frame, 0, version)
        assert plain is None or plain == read_any_commit(frame, 0, version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("instance_id", [None, "", "here"])
@pytest.mark.parametrize("metadata", [None, "", "note"])
def test_request_for_one_partition_is_plain(
    version: int, instance_id: str | None, metadata: str | None
) -> None:
    place = fields()["topics"][0]["partitions"][0] | {"committed_metadata": metadata}
    topic = {"name": "orders", "topic_id": IDS["orders"], "partitions": [place]}
    asked = fields() | {"member_id": "m", "group_instance_id": instance_id, "topics": [topic]}
    frame = memoryview(encode_request(OFFSET_COMMIT, version, asked))
    plain = read_plain_commit(frame, 0, version)
    assert plain is not None
    assert plain == read_any_commit(frame, 0, version)
