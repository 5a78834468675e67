"""Transaction records and InitProducerId requests of any content: they are decoded, skipped, or refused."""

from __future__ import annotations

import contextlib

from fuzz_harness import fuzz, mutations
from hypothesis import strategies as st

from penstock.errors import ProtocolError
from penstock.model import ProducerEpoch, ProducerId, TopicPartition
from penstock.state_log.replaying import UnknownRecord
from penstock.transactions.record_codec import TransactionRecord, decode_record, encode_record
from penstock.transactions.transaction import Identity, Transaction, TransactionState
from penstock.wire.init_producer_id import (
    InitProducerIdRequest,
    decode_init_producer_id,
    encode_init_producer_id,
)

identities = st.builds(
    Identity, st.integers(0, 2**63 - 1).map(ProducerId), st.integers(0, 2**15 - 1).map(ProducerEpoch)
)
partitions = st.builds(TopicPartition, st.text(min_size=1, max_size=9), st.integers(0, 2**31 - 1))
encoded = st.builds(
    Transaction,
    producer=identities,
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from(TransactionState),
    partitions=st.frozensets(partitions, max_size=6),
    earlier=identities,
    is_held=st.booleans(),
).map(lambda value: encode_record(TransactionRecord("id", value))[1] or b"")


def test_random_transaction_records_are_decoded_or_skipped() -> None:
    def target(value: bytes) -> None:
        with contextlib.suppress(UnknownRecord):
            decoded = decode_record(b"\x00\x00\x00\x02id", value)
            assert decode_record(*encode_record(decoded)).value is not None

    fuzz(target, mutations(encoded) | st.binary(max_size=80))


def test_random_init_producer_id_requests_are_decoded_or_refused() -> None:
    def target(drawn: tuple[int, bytes]) -> None:
        version, frame = drawn
        with contextlib.suppress(ProtocolError):
            decode_init_producer_id(memoryview(frame), 0, version)

    requests = st.builds(
        InitProducerIdRequest,
        st.none() | st.text(max_size=9),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(-(2**63), 2**63 - 1),
        st.integers(-(2**15), 2**15 - 1),
        st.booleans(),
    )
    bodies = st.integers(0, 5).flatmap(
        lambda version: st.tuples(
            st.just(version),
            mutations(requests.map(lambda request: encode_init_producer_id(version, 1, None, request)[14:])),
        )
    )
    fuzz(target, bodies | st.tuples(st.integers(0, 5), st.binary(max_size=60)))
