from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ProtocolError
from penstock.model import TopicPartition
from penstock.wire.apis import KNOWN_TRANSACTIONS
from penstock.wire.framing import SIZE_PREFIX
from penstock.wire.headers import decode_request_header
from penstock.wire.known_transactions import (
    KnownTransactions,
    OpenTransaction,
    decode_known_transactions_request,
    decode_known_transactions_response,
    encode_known_transactions_request,
    encode_known_transactions_response,
)

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
open_transactions = st.builds(OpenTransaction, int64, st.builds(TopicPartition, st.text(max_size=20), int32))
answers = st.builds(
    KnownTransactions,
    st.integers(-1, 100),
    st.dictionaries(int32, int32, max_size=5),
    st.lists(int32, max_size=5).map(tuple),
)


@given(st.lists(open_transactions, max_size=5).map(tuple))
def test_request_round_trips(asked: tuple[OpenTransaction, ...]) -> None:
    frame = memoryview(encode_known_transactions_request(7, "penstock-broker-1", asked))[SIZE_PREFIX:]
    header, position = decode_request_header(frame)
    assert (header.api_key, header.correlation_id) == (KNOWN_TRANSACTIONS, 7)
    assert decode_known_transactions_request(frame, position) == asked


@given(answers)
def test_response_round_trips(answer: KnownTransactions) -> None:
    frame = memoryview(encode_known_transactions_response(7, answer))[SIZE_PREFIX:]
    assert decode_known_transactions_response(frame) == answer


@given(st.binary(max_size=40))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    frame = memoryview(data)
    with suppress(ProtocolError):
        decode_known_transactions_request(frame, 0)


def test_truncated_response_is_refused() -> None:
    frame = memoryview(encode_known_transactions_response(7, KnownTransactions(known=(1, 2))))
    with pytest.raises(ProtocolError):
        decode_known_transactions_response(frame[SIZE_PREFIX:-1])
