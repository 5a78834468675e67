"""The OffsetCommit codec by hand matches the schema."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from penstock.errors import ErrorCode, ProtocolError
from penstock.wire.framing import SIZE_PREFIX
from penstock.wire.messages import decode_response_frame, encode_request
from penstock.wire.offset_commit import decode_offset_commit_request, encode_offset_commit_response

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
def test_decodes_what_the_schema_encodes(version: int) -> None:
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
def test_encodes_what_the_schema_decodes(version: int) -> None:
    body = encode_request(OFFSET_COMMIT, version, fields())
    topics = decode_offset_commit_request(memoryview(body), 0, version).topics
    codes = [[0, ErrorCode.illegal_generation, 0], [ErrorCode.unknown_topic_or_partition] * 3]
    frame = encode_offset_commit_response(99, version, topics, codes)
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
def test_refuses_every_truncated_request(version: int) -> None:
    body = encode_request(OFFSET_COMMIT, version, fields())
    for end in range(len(body)):
        with pytest.raises(ProtocolError):
            decode_offset_commit_request(memoryview(body[:end]), 0, version)
