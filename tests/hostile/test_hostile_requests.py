"""Requests that violate their schema: unknown, truncated, too long, with wrong lengths (K06 to K12)."""

from __future__ import annotations

import struct

import pytest
import specimens
from watch import MIB, Watch

from support import raw
from support.broker_process import BrokerProcess

UNSUPPORTED_VERSION = 35
INT_MAX = 2**31 - 1

# Extreme values of lengths, counts, ids and numbers in each encoding.
NASTY = (
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
    b"\x00\x00\x00\x00",
)

by_api = pytest.mark.parametrize("api_key", specimens.API_KEYS, ids=specimens.API_NAMES)


@pytest.fixture(scope="module")
def served(broker: BrokerProcess) -> dict[int, list[int]]:
    """Versions of each API that the broker advertises and that have a schema."""
    with raw.RawClient(broker.port) as client:
        keys = client.call(raw.API_VERSIONS, 0).api_keys
    ranges = {key.api_key: range(key.min_version, key.max_version + 1) for key in keys}
    return {key: [v for v in ranges[key] if v in specimens.known_versions(key)] for key in specimens.API_KEYS}


def probe(watch: Watch, content: bytes) -> bytes:
    """Send bytes, and return the response before the broker closes the connection."""
    with watch.client() as client:
        client.send(content)
        client.finish_sending()
        return client.read_until_closed()


@by_api
def test_every_advertised_api_version_gets_a_response(
    watch: Watch, served: dict[int, list[int]], api_key: int
) -> None:
    assert served[api_key]
    for version in served[api_key]:
        with watch.client() as client:
            client.call(api_key, version, **specimens.SPECIMENS[api_key])


@pytest.mark.parametrize("api_key", [-1, 999, 32767, -32768, 4, 5, 6, 7, 52, 53, 54, 59, 62, 63, 67, 1000])
def test_an_unknown_api_closes_the_connection(watch: Watch, api_key: int) -> None:
    content = struct.pack(">hhih", api_key, 0, 1, -1)
    watch.refuses(raw.framed(content), raw.framed(content + bytes(100)))


@pytest.mark.parametrize("api_key", [4, 5, 6, 7, 27, 56, 58, 62, 63, 67, 70, 73])
def test_api_between_brokers_is_not_served_to_clients(watch: Watch, api_key: int) -> None:
    watch.refuses(raw.framed(struct.pack(">hhihb", api_key, 1, 1, -1, 0) + bytes(64)))


@by_api
def test_unsupported_api_version_closes_the_connection(
    watch: Watch, served: dict[int, list[int]], api_key: int
) -> None:
    if api_key == raw.API_VERSIONS:
        pytest.skip("answered in version 0, see below")
    outside = [-1, -32768, served[api_key][-1] + 1, 32767]
    watch.refuses(*(raw.framed(struct.pack(">hhihb", api_key, v, 1, -1, 0) + bytes(32)) for v in outside))


@pytest.mark.parametrize("version", [5, 6, 99, 32767])
@pytest.mark.parametrize("tail", [b"", b"\x00" * 20, b"\xff" * 20], ids=["bare", "zeros", "ones"])
def test_api_versions_of_an_unknown_version_is_answered_in_version_zero(
    watch: Watch, version: int, tail: bytes
) -> None:
    with watch.client() as client:
        client.send(raw.framed(struct.pack(">hhihb", raw.API_VERSIONS, version, 9, -1, 0) + tail))
        answer = raw.decode_response(raw.API_VERSIONS, 0, client.read_frame())
        assert answer.error_code == UNSUPPORTED_VERSION
        assert [key.api_key for key in answer.api_keys] == [raw.API_VERSIONS]
        client.call(
            raw.API_VERSIONS,
            answer.api_keys[0].max_version,
            client_software_name="a",
            client_software_version="1",
        )


@pytest.mark.parametrize(
    "client_id",
    [
        struct.pack(">h", -2),
        struct.pack(">h", 32767),
        struct.pack(">h", -32768),
        struct.pack(">h", 10) + b"abc",
    ],
)
def test_a_client_id_of_impossible_length_closes_the_connection(watch: Watch, client_id: bytes) -> None:
    watch.refuses(raw.framed(struct.pack(">hhi", raw.METADATA, 1, 1) + client_id))


def test_client_id_that_is_not_utf8_does_not_harm_the_broker(watch: Watch) -> None:
    content = struct.pack(">hhih", raw.API_VERSIONS, 0, 1, 4) + b"\xff\xfe\xc0\x80"
    probe(watch, raw.framed(content))


@by_api
def test_truncated_body_closes_the_connection(
    watch: Watch, served: dict[int, list[int]], api_key: int
) -> None:
    for version in {served[api_key][0], served[api_key][-1]}:
        head, body = specimens.header(api_key, version), specimens.body(api_key, version)
        cuts = range(len(body)) if len(body) < 64 else [*range(48), *range(48, len(body), 7)]
        watch.refuses(*(raw.framed(head + body[:cut]) for cut in cuts))


@by_api
def test_bytes_behind_the_end_of_a_request_are_ignored(
    watch: Watch, served: dict[int, list[int]], api_key: int
) -> None:
    """Kafka does the same, and some clients rely on it."""
    for version in {served[api_key][0], served[api_key][-1]}:
        content = specimens.header(api_key, version) + specimens.body(api_key, version)
        for junk in (b"\x00", b"junk" * 100):
            with watch.client() as client:
                client.send(raw.framed(content + junk))
                raw.decode_response(api_key, version, client.read_frame())


@by_api
def test_damaged_requests_of_every_api_do_not_harm_the_broker(
    watch: Watch, served: dict[int, list[int]], api_key: int
) -> None:
    for version in {served[api_key][0], served[api_key][-1]}:
        head, body = specimens.header(api_key, version), specimens.body(api_key, version)
        for position in range(0, min(len(body), 160), 2 if len(body) > 60 else 1):
            for nasty in NASTY:
                damaged = body[:position] + nasty + body[position + len(nasty) :]
                probe(watch, raw.framed(head + damaged))


@by_api
def test_request_body_of_one_repeated_byte_does_not_harm_the_broker(
    watch: Watch, served: dict[int, list[int]], api_key: int
) -> None:
    for version in {served[api_key][0], served[api_key][-1]}:
        for filling in (b"\x00", b"\xff", b"\x80", b"\x01", b"\x7f", b"\xfe"):
            probe(watch, raw.framed(specimens.header(api_key, version) + filling * 100_000))


def legacy_metadata(count: int, topics: bytes) -> bytes:
    return raw.framed(raw.header(raw.METADATA, 1) + struct.pack(">i", count) + topics)


@pytest.mark.parametrize("count", [INT_MAX, 1000, 2, -2, -(2**31)])
def test_an_array_longer_than_the_request_closes_the_connection(watch: Watch, count: int) -> None:
    watch.refuses(legacy_metadata(count, b"\x00\x01a"))


@pytest.mark.parametrize("api_key", [raw.PRODUCE, raw.FETCH])
@pytest.mark.parametrize("count", [INT_MAX, 1 << 20, -1, -2])
def test_array_longer_than_the_request_is_refused_by_hand_written_codecs(
    watch: Watch, api_key: int, count: int
) -> None:
    version = 7 if api_key == raw.PRODUCE else 4
    content = raw.header(api_key, version) + raw.body(api_key, version, acks=1, max_bytes=1)
    watch.refuses(raw.framed(content[:-4] + struct.pack(">i", count) + bytes(40)))


@pytest.mark.parametrize(
    "length", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\x80\x80\x40", b"\xff\x7f"]
)
def test_a_compact_array_longer_than_the_request_closes_the_connection(watch: Watch, length: bytes) -> None:
    watch.refuses(raw.framed(raw.header(raw.METADATA, 9) + length + b"\x02a\x00\x00\x00\x00\x00"))


def test_array_that_claims_an_element_for_each_byte_is_refused_before_allocation(watch: Watch) -> None:
    """The count is smaller than the number of bytes left, but larger than the elements allow."""
    watch.max_growth_bytes = 96 * MIB
    filling = b"\x00" * (8 * MIB)
    watch.refuses(
        raw.framed(raw.header(raw.CREATE_TOPICS, 2) + struct.pack(">i", len(filling)) + filling),
        raw.framed(
            raw.header(raw.FETCH, 4) + raw.body(raw.FETCH, 4)[:-4] + struct.pack(">i", len(filling)) + filling
        ),
    )


@pytest.mark.parametrize("length", [b"\xff\xfe", b"\x7f\xff", b"\x00\x05"])
def test_a_string_longer_than_the_request_closes_the_connection(watch: Watch, length: bytes) -> None:
    watch.refuses(legacy_metadata(1, length + b"abc"))


def test_null_in_a_non_nullable_string_closes_the_connection(watch: Watch) -> None:
    watch.refuses(legacy_metadata(1, b"\xff\xff"))


def test_a_string_that_is_not_utf8_closes_the_connection(watch: Watch) -> None:
    watch.refuses(legacy_metadata(1, b"\x00\x04\xff\xfe\xc0\x80"))


@pytest.mark.parametrize("name", ["a\x00b", "\x00", "\u202eevil", "to\npic", "\x1b[31m"])
def test_a_name_with_control_characters_is_an_invalid_topic(watch: Watch, name: str) -> None:
    with watch.client() as client:
        answer = client.call(raw.METADATA, 4, topics=[{"name": name}], allow_auto_topic_creation=True)
        assert [topic.error_code for topic in answer.topics] == [17]
        created = client.call(
            raw.CREATE_TOPICS, 5, topics=[{"name": name, "num_partitions": 1, "replication_factor": 1}]
        )
        assert [topic.error_code for topic in created.topics] == [17]


@pytest.mark.parametrize(
    "varint", [b"\x80" * 5 + b"\x00", b"\x80" * 4 + b"\x10", b"\xff" * 10 + b"\x01", b"\x80" * 5000]
)
@pytest.mark.parametrize("api_key", [raw.PRODUCE, raw.FETCH, raw.METADATA, raw.CREATE_TOPICS])
def test_a_varint_of_more_than_five_bytes_closes_the_connection(
    watch: Watch, api_key: int, varint: bytes
) -> None:
    before = {
        raw.PRODUCE: b"\x00" + struct.pack(">hi", -1, 100),
        raw.FETCH: struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, -1),
        raw.METADATA: b"",
        raw.CREATE_TOPICS: b"",
    }[api_key]
    version = {raw.PRODUCE: 9, raw.FETCH: 12, raw.METADATA: 9, raw.CREATE_TOPICS: 5}[api_key]
    watch.refuses(raw.framed(raw.header(api_key, version) + before + varint + bytes(40)))


def varint(value: int) -> bytes:
    content = bytearray()
    while value > 127:
        content.append(value & 127 | 128)
        value >>= 7
    content.append(value)
    return bytes(content)


def tags(*fields: tuple[int, bytes]) -> bytes:
    return varint(len(fields)) + b"".join(varint(tag) + varint(len(value)) + value for tag, value in fields)


def with_body_tags(api_key: int, tagged: bytes) -> bytes:
    version = {raw.METADATA: 9, raw.PRODUCE: 9, raw.FETCH: 12, raw.DESCRIBE_CLUSTER: 0}[api_key]
    content = specimens.header(api_key, version) + specimens.body(api_key, version)
    assert content.endswith(b"\x00")
    return raw.framed(content[:-1] + tagged)


def with_header_tags(tagged: bytes) -> bytes:
    head = raw.header(raw.METADATA, 9)
    return raw.framed(head[:-1] + tagged + specimens.body(raw.METADATA, 9))


BAD_TAGS = {
    "a-million": varint(1_000_000) + b"".join(varint(n) + b"\x00" for n in range(100, 100_000)),
    "as-many-as-there-are-bytes": tags(*((100 + n, b"") for n in range(20_000))),
    "claimed-but-missing": varint(2**28),
    "twice-the-same": tags((100, b"a"), (100, b"b")),
    "out-of-order": tags((101, b"a"), (100, b"b")),
    "longer-than-the-request": varint(1) + varint(100) + varint(2**31 - 1) + b"abc",
    "never-ending": b"\x01\xff\xff\xff\xff\xff\xff\xff",
}


@pytest.mark.parametrize("tagged", BAD_TAGS.values(), ids=BAD_TAGS)
def test_bad_tagged_fields_close_the_connection(watch: Watch, tagged: bytes) -> None:
    for api_key in (raw.METADATA, raw.PRODUCE, raw.FETCH, raw.DESCRIBE_CLUSTER):
        watch.refuses(with_body_tags(api_key, tagged))


@pytest.mark.parametrize("tagged", BAD_TAGS.values(), ids=BAD_TAGS)
def test_bad_tagged_fields_of_the_header_close_the_connection(watch: Watch, tagged: bytes) -> None:
    watch.refuses(with_header_tags(tagged))


@pytest.mark.parametrize("api_key", [raw.METADATA, raw.PRODUCE, raw.FETCH, raw.DESCRIBE_CLUSTER])
def test_a_few_unknown_tagged_fields_are_ignored(watch: Watch, api_key: int) -> None:
    tagged = tags((100, b"new"), (101, b""), (5000, bytes(1000)))
    for content in (with_body_tags(api_key, tagged), with_header_tags(tagged)):
        with watch.client() as client:
            client.send(content)
            assert client.read_frame()
