"""The Heartbeat codec by hand matches the schema."""

from __future__ import annotations

import pytest

from penstock.errors import ErrorCode, ProtocolError
from penstock.wire.framing import SIZE_PREFIX
from penstock.wire.heartbeat import decode_heartbeat_request, encode_heartbeat_response
from penstock.wire.messages import decode_response_frame, encode_request

HEARTBEAT = 12
VERSIONS = range(5)
FIELDS = {"group_id": "grüppe", "generation_id": 7, "member_id": "m" * 200, "group_instance_id": "here"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("instance_id", ["here", None])
def test_heartbeat_codec_decodes_what_the_schema_encodes(version: int, instance_id: str | None) -> None:
    body = encode_request(HEARTBEAT, version, FIELDS | {"group_instance_id": instance_id})
    request = decode_heartbeat_request(memoryview(b"head" + body + b"behind"), 4, version)
    assert (request.group_id, request.generation, request.member_id) == ("grüppe", 7, "m" * 200)
    assert request.instance_id == (instance_id if version >= 3 else None)


@pytest.mark.parametrize("version", VERSIONS)
def test_heartbeat_codec_encodes_what_the_schema_decodes(version: int) -> None:
    frame = encode_heartbeat_response(99, version, ErrorCode.illegal_generation)
    assert int.from_bytes(frame[:SIZE_PREFIX], "big") == len(frame) - SIZE_PREFIX
    assert int.from_bytes(frame[SIZE_PREFIX : SIZE_PREFIX + 4], "big") == 99
    answer = decode_response_frame(HEARTBEAT, version, memoryview(frame)[SIZE_PREFIX:])
    assert answer.error_code == ErrorCode.illegal_generation


@pytest.mark.parametrize("version", VERSIONS)
def test_refuses_every_truncated_request(version: int) -> None:
    body = encode_request(HEARTBEAT, version, FIELDS)
    for end in range(len(body)):
        with pytest.raises(ProtocolError):
            decode_heartbeat_request(memoryview(body[:end]), 0, version)
