"""The InitProducerId codec by hand matches its schema, and carries one more field."""

from __future__ import annotations

import pytest

from penstock.errors import ProtocolError
from penstock.wire.headers import decode_request_header
from penstock.wire.init_producer_id import (
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    decode_init_producer_id,
    encode_init_producer_id,
)
from penstock.wire.messages import decode_request, encode_request_frame


@pytest.mark.parametrize("transactional_id", [None, "t", "ü" * 200])
@pytest.mark.parametrize("version", range(6))
def test_hand_written_codec_matches_the_schema(version: int, transactional_id: str | None) -> None:
    fields = {"transactional_id": transactional_id, "transaction_timeout": 5_000}
    request = InitProducerIdRequest(transactional_id, 5_000)
    if version >= 3:
        fields |= {"producer_id": 7, "producer_epoch": 3}
        request = InitProducerIdRequest(transactional_id, 5_000, 7, 3)
    frame = encode_request_frame(INIT_PRODUCER_ID, version, 9, "me", fields)
    assert encode_init_producer_id(version, 9, "me", request) == frame
    body = memoryview(frame)[4:]
    _, position = decode_request_header(body)
    assert decode_init_producer_id(body, position, version) == request


@pytest.mark.parametrize("version", range(2, 6))
def test_held_tag_is_skipped_by_other_readers(version: int) -> None:
    request = InitProducerIdRequest("t", 5_000, is_held=True)
    body = memoryview(encode_init_producer_id(version, 9, "me", request))[4:]
    _, position = decode_request_header(body)
    assert decode_init_producer_id(body, position, version).is_held
    assert decode_request(INIT_PRODUCER_ID, version, body, position).transactional_id == "t"


def test_truncated_request_is_refused() -> None:
    body = memoryview(encode_init_producer_id(5, 9, None, InitProducerIdRequest("t", 1, is_held=True)))[4:]
    _, position = decode_request_header(body)
    for end in range(position, len(body)):
        with pytest.raises(ProtocolError):
            decode_init_producer_id(body[:end], position, 5)
