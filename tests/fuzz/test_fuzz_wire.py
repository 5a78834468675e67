"""Bytes from untrusted clients: every parser returns or raises ProtocolError, within limits of time and memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random

import pytest
from fuzz_harness import fuzz, mutations
from hypothesis import strategies as st
from kio.schema.index import api_key_map, schema_name_map

from penstock.errors import ProtocolError
from penstock.server.handlers import all_apis
from penstock.wire.fetch import FetchResult, FetchTopicResult, decode_fetch_request, encode_fetch_response
from penstock.wire.fetch_client import decode_fetch_response
from penstock.wire.framing import FrameReader
from penstock.wire.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
)
from penstock.wire.heartbeat import decode_heartbeat_request
from penstock.wire.messages import decode_request, decode_response
from penstock.wire.offset_commit import decode_offset_commit_request
from penstock.wire.produce import (
    ProduceResult,
    ProduceTopicResult,
    decode_produce_request,
    encode_produce_response,
)
from penstock.wire.produce_client import decode_produce_response
from penstock.wire.schema import Direction
from support.message_samples import ALL_VERSIONS, random_body

PRODUCE, FETCH, OFFSET_COMMIT, HEARTBEAT = 0, 1, 8, 12
SERVED_API_KEYS = [api.key for api in all_apis() if api.handle is not None]

seeds = st.integers(0, 2**32)


def bodies(direction: Direction, api_key: int, version: int) -> st.SearchStrategy[bytes]:
    """Valid frames, changed ones, and noise."""
    good = st.builds(lambda seed: random_body(Random(seed), direction, api_key, version), seeds)
    return good | mutations(good) | st.binary(max_size=200)


def versions_and_bodies(direction: Direction, api_key: int) -> st.SearchStrategy[tuple[int, bytes]]:
    versions = st.sampled_from(sorted(schema_name_map[api_key_map[api_key]]))
    return versions.flatmap(lambda version: st.tuples(st.just(version), bodies(direction, api_key, version)))


def test_random_frames_are_read_or_refused() -> None:
    def target(chunks: list[bytes]) -> None:
        reader = FrameReader(100_000)
        received = sum(map(len, chunks))
        framed = 0
        with contextlib.suppress(ProtocolError):
            for chunk in chunks:
                buffer = reader.buffer()
                count = min(len(buffer), len(chunk))
                buffer[:count] = chunk[:count]
                framed += sum(len(frame) + 4 for frame in reader.received(count))
        assert framed <= received

    sizes = st.integers(-(2**31), 2**31 - 1) | st.integers(0, 200)
    chunk = st.binary(min_size=1, max_size=300) | sizes.map(lambda size: size.to_bytes(4, "big", signed=True))
    fuzz(target, st.lists(chunk, max_size=20))


def test_random_request_headers_are_decoded_or_refused() -> None:
    def target(data: bytes) -> None:
        with contextlib.suppress(ProtocolError):
            _, position = decode_request_header(memoryview(data))
            assert 10 <= position <= len(data)

    def header(api: tuple[int, int], name: str | None) -> bytes:
        return encode_request_header(RequestHeader(*api, 1, name))

    names = st.none() | st.text(max_size=30)
    api = st.sampled_from(ALL_VERSIONS)
    good = st.builds(header, api, names)
    fuzz(target, mutations(good) | st.binary(max_size=60))


def test_random_response_headers_are_decoded_or_refused() -> None:
    def target(data: bytes) -> None:
        for version in (0, 12):
            with contextlib.suppress(ProtocolError):
                decode_response_header(3, version, memoryview(data))

    fuzz(target, st.binary(max_size=60))


@pytest.mark.drawn
@pytest.mark.parametrize("api_key", SERVED_API_KEYS)
def test_random_requests_of_served_apis_are_decoded_or_refused(api_key: int) -> None:
    def target(drawn: tuple[int, bytes]) -> None:
        with contextlib.suppress(ProtocolError):
            decode_request(api_key, drawn[0], memoryview(drawn[1]), 0)

    fuzz(target, versions_and_bodies("request", api_key), examples=60)


@pytest.mark.parametrize("direction", ["request", "response"])
def test_random_messages_are_decoded_or_refused(direction: Direction) -> None:
    decode = decode_request if direction == "request" else decode_response

    def target(drawn: tuple[tuple[int, int], bytes]) -> None:
        with contextlib.suppress(ProtocolError):
            decode(*drawn[0], memoryview(drawn[1]), 0)

    api = st.sampled_from(ALL_VERSIONS)
    drawn = api.flatmap(lambda api: st.tuples(st.just(api), bodies(direction, *api)))
    fuzz(target, drawn, examples=300)


@pytest.mark.parametrize(
    ("api_key", "decode"),
    [
        (PRODUCE, decode_produce_request),
        (FETCH, decode_fetch_request),
        (HEARTBEAT, decode_heartbeat_request),
        (OFFSET_COMMIT, decode_offset_commit_request),
    ],
)
def test_handwritten_request_codec_accepts_what_the_schema_accepts(
    api_key: int, decode: Callable[[memoryview, int, int], object]
) -> None:
    """Accepted or refused as the schema says; APIs without a schema are refused with a response."""

    def outcome(parse: Callable[[], object]) -> bool:
        try:
            parse()
        except ProtocolError:
            return False
        return True

    def target(drawn: tuple[int, bytes]) -> None:
        version, body = drawn[0], memoryview(drawn[1])
        taken = outcome(lambda: decode(body, 0, version))
        assert taken == outcome(lambda: decode_request(api_key, version, body, 0))
        for oldest in range(3):
            outcome(lambda: decode(body, 0, oldest))  # noqa: B023 - called at once

    fuzz(target, versions_and_bodies("request", api_key), examples=400)


def test_random_responses_are_decoded_by_hand_or_refused() -> None:
    produce = [ProduceTopicResult("topic", None, [ProduceResult(1), ProduceResult(2, 3, error_message="no")])]
    fetch = [FetchTopicResult("topic", None, [FetchResult(1, records=b"records"), FetchResult(2, 3)])]

    def target(drawn: tuple[int, bytes]) -> None:
        with contextlib.suppress(ProtocolError):
            decode_produce_response(memoryview(drawn[1]), min(drawn[0], 13))
        with contextlib.suppress(ProtocolError):
            decode_fetch_response(memoryview(drawn[1]), drawn[0])

    def good(version: int) -> st.SearchStrategy[tuple[int, bytes]]:
        frames = [encode_produce_response(1, min(version, 13), produce)[4:]]
        parts = encode_fetch_response(1, version, topics=fetch)
        frames.append(b"".join(part for part in parts if isinstance(part, bytes | bytearray))[4:])
        return st.tuples(st.just(version), mutations(st.sampled_from(frames)))

    fuzz(target, st.integers(0, 18).flatmap(good), examples=400)
