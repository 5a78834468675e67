"""Lookups by key and keys of batches from untrusted clients: refused or accepted, within limits of time and memory."""

from __future__ import annotations

import contextlib
from uuid import UUID

from fuzz_harness import fuzz, mutations
from hypothesis import strategies as st

from penstock.errors import ProtocolError
from penstock.model import TopicId
from penstock.records.batch import HEADER_SIZE, read_header
from penstock.records.building import NewRecord, build_batch
from penstock.storage.derived.entries import PLACE, SORT_KEY_BYTES, read_key
from penstock.storage.keys.entries import IDEMPOTENCY_HEADER, entries_of
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

LIMIT = 2**20


def test_random_key_lookup_bytes_are_decoded_or_refused() -> None:
    lookups = tuple(KeyLookup(number, TopicId(UUID(int=number)), 0, b"key") for number in range(3))
    request = encode_fetch_by_key_request(1, "fuzz", FetchByKeyRequest(lookups, (7, 8)))[4:]
    _, position = decode_request_header(memoryview(request))
    response = encode_fetch_by_key_response(1, [KeyResult(1, records=b"records"), KeyResult(2, 3)])[4:]

    def target(drawn: tuple[bytes, bytes]) -> None:
        with contextlib.suppress(ProtocolError):
            decode_fetch_by_key_request(memoryview(drawn[0]), 0)
        with contextlib.suppress(ProtocolError):
            decode_fetch_by_key_response(memoryview(drawn[1]))

    fuzz(
        target, st.tuples(mutations(st.just(request[position:])), mutations(st.just(response))), examples=300
    )


def test_random_batch_bodies_give_keys_in_order_or_are_refused() -> None:
    """Entries are in order and lead back to records of the batch, whatever a producer put into it."""
    records = st.builds(
        lambda keys, own: [
            NewRecord(key, b"v", 0, ((IDEMPOTENCY_HEADER, own),) if own is not None else ()) for key in keys
        ],
        st.lists(st.none() | st.binary(max_size=20), min_size=1, max_size=10),
        st.none() | st.binary(max_size=10),
    )
    batches = st.builds(lambda drawn: bytes(build_batch(drawn, base_offset=1_000)), records)
    changed = batches.flatmap(
        lambda batch: mutations(st.just(batch[HEADER_SIZE:])).map(lambda body: batch[:HEADER_SIZE] + body)
    )

    def target(data: bytes) -> None:
        header = read_header(data)._replace(batch_length=len(data) - 12)
        entries = entries_of(memoryview(data), header, 900, 77, LIMIT)
        offsets = []
        for entry in entries:
            offset, position, place, _ = PLACE.unpack_from(entry, SORT_KEY_BYTES)
            assert position == 77
            assert 100 <= offset <= 100 + header.last_offset_delta
            _, delta, _, _ = read_key(data[HEADER_SIZE:], place)
            assert delta == offset - 100
            offsets.append(offset)
        assert offsets == sorted(offsets)

    fuzz(target, changed, examples=300)
