from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ProtocolError
from penstock.model import TopicId
from penstock.wire.apis import FETCH_BY_KEY
from penstock.wire.fetch_by_key import (
    FetchByKeyRequest,
    KeyLookup,
    KeyResult,
    decode_fetch_by_key_request,
    decode_fetch_by_key_response,
    encode_fetch_by_key_request,
    encode_fetch_by_key_response,
)
from penstock.wire.headers import decode_request_header

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
lookups = st.builds(
    KeyLookup,
    int32,
    st.builds(TopicId, st.uuids()),
    int32,
    st.binary(max_size=50),
    int64,
    int32,
    int32,
    int32,
    int32,
)
results = st.builds(
    KeyResult, int32, st.integers(0, 100), int64, int64, int64, st.booleans(), st.binary(max_size=50)
)
requests = st.builds(
    FetchByKeyRequest,
    st.lists(lookups, max_size=5).map(tuple),
    st.lists(int32, max_size=5).map(tuple),
)
SIZE_PREFIX = 4


@given(requests)
def test_request_round_trips(request: FetchByKeyRequest) -> None:
    frame = memoryview(encode_fetch_by_key_request(7, "gateway", request))[SIZE_PREFIX:]
    header, position = decode_request_header(frame)
    assert (header.api_key, header.correlation_id) == (FETCH_BY_KEY, 7)
    assert decode_fetch_by_key_request(frame, position) == request


@given(st.lists(results, max_size=5))
def test_response_round_trips(given_results: list[KeyResult]) -> None:
    frame = memoryview(encode_fetch_by_key_response(7, given_results))[SIZE_PREFIX:]
    assert decode_fetch_by_key_response(frame) == given_results


@given(requests, st.data())
def test_truncated_lookup_request_is_refused(request: FetchByKeyRequest, data: st.DataObject) -> None:
    frame = memoryview(encode_fetch_by_key_request(7, "gateway", request))[SIZE_PREFIX:]
    _, position = decode_request_header(frame)
    cut = data.draw(st.integers(position, len(frame) - 1))
    with pytest.raises(ProtocolError):
        decode_fetch_by_key_request(frame[:cut], position)


def test_count_beyond_the_bytes_is_refused() -> None:
    lookup = KeyLookup(1, TopicId(UUID(int=1)), 0, b"k")
    frame = bytearray(encode_fetch_by_key_request(7, "gateway", FetchByKeyRequest((lookup,))))[SIZE_PREFIX:]
    _, position = decode_request_header(memoryview(frame))
    frame[position : position + 4] = b"\x7f\xff\xff\xff"
    with pytest.raises(ProtocolError):
        decode_fetch_by_key_request(memoryview(frame), position)
