from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map

from penstock.errors import ProtocolError
from penstock.wire.apis import (
    BROKER_HANDSHAKE,
    FETCH_BY_KEY,
    FLEXIBLE_FROM,
    INSPECT,
    KNOWN_TRANSACTIONS,
    OBJECT_CALL,
    QUEUE_RECEIVE,
    QUEUE_SETTLE,
    SHARE_STATE,
    SHARE_STATUS,
    api_name,
    has_flexible_response_header,
)
from penstock.wire.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)

VERSIONS = [(key, version) for key, name in api_key_map.items() for version in schema_name_map[name]]


def test_api_table_matches_the_schemas() -> None:
    assert set(FLEXIBLE_FROM) == set(api_key_map) | {
        BROKER_HANDSHAKE,
        FETCH_BY_KEY,
        KNOWN_TRANSACTIONS,
        SHARE_STATUS,
        INSPECT,
        SHARE_STATE,
        QUEUE_RECEIVE,
        QUEUE_SETTLE,
        OBJECT_CALL,
    }
    for key, version in VERSIONS:
        schema = load_request_schema(key, version)
        assert schema.__name__ == f"{api_name(key)}Request"
        assert schema.__flexible__ == (version >= FLEXIBLE_FROM[key])
        assert schema.__header_schema__.__version__ == (2 if version >= FLEXIBLE_FROM[key] else 1)
        response_header = load_response_schema(key, version).__header_schema__
        assert response_header.__version__ == int(has_flexible_response_header(key, version))


@given(
    st.sampled_from(VERSIONS),
    st.integers(-(2**31), 2**31 - 1),
    st.none() | st.text(max_size=300),
    st.binary(max_size=20),
)
def test_request_header_round_trips_with_body_position(
    api: tuple[int, int], correlation_id: int, client_id: str | None, body: bytes
) -> None:
    header = RequestHeader(*api, correlation_id, client_id)
    frame = memoryview(encode_request_header(header) + body)
    decoded, position = decode_request_header(frame)
    assert decoded == header
    assert bytes(frame[position:]) == body


@given(st.sampled_from(VERSIONS), st.integers(-(2**31), 2**31 - 1))
def test_response_header_round_trips(api: tuple[int, int], correlation_id: int) -> None:
    frame = memoryview(encode_response_header(*api, correlation_id) + b"body")
    decoded, position = decode_response_header(*api, frame)
    assert decoded == correlation_id
    assert bytes(frame[position:]) == b"body"


def test_api_versions_response_has_classic_header_in_every_version() -> None:
    assert encode_response_header(18, 3, 7) == encode_response_header(18, 0, 7) == b"\x00\x00\x00\x07"
    assert encode_response_header(3, 12, 7) == b"\x00\x00\x00\x07\x00"


def test_client_id_stays_a_classic_string_in_a_flexible_header() -> None:
    frame = struct.pack(">hhih", 3, 9, 1, 4) + b"kcat" + b"\x00" + b"body"
    assert decode_request_header(memoryview(frame)) == (RequestHeader(3, 9, 1, "kcat"), 15)


def test_unknown_header_tags_are_skipped() -> None:
    frame = struct.pack(">hhih", 3, 9, 1, -1) + b"\x02\x00\x01a\x63\x02bc" + b"body"
    header, position = decode_request_header(memoryview(frame))
    assert header.client_id is None
    assert frame[position:] == b"body"


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00",
        struct.pack(">hhi", 3, 1, 1),
        struct.pack(">hhih", -1, 0, 1, -1),
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", 4, 0, 1, -1),  # LeaderAndIsr was removed
        struct.pack(">hhih", 3, -1, 1, -1),
        struct.pack(">hhih", 3, 1, 1, -2),
        struct.pack(">hhih", 3, 1, 1, 5) + b"four",
        struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xfe",
        struct.pack(">hhih", 3, 9, 1, -1),  # no count of tags
        struct.pack(">hhih", 3, 9, 1, -1) + b"\x01\x00\x05abc",  # a tag beyond the frame
        struct.pack(">hhih", 3, 9, 1, -1) + b"\x02\x05\x00\x05\x00",  # a tag twice
        struct.pack(">hhih", 3, 9, 1, -1) + b"\x02\x05\x00\x04\x00",  # decreasing tags
        struct.pack(">hhih", 3, 9, 1, -1) + b"\xff\xff\xff\xff\x0f" + bytes(100),
        struct.pack(">hhih", 3, 9, 1, -1) + b"\x80" * 20,
    ],
)
def test_a_malformed_header_is_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(memoryview(frame))
