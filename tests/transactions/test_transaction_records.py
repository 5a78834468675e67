"""Records of `__transaction_state`: round trips, Kafka's layout, and malformed bytes."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import ProducerEpoch, ProducerId, TopicPartition
from penstock.state_log.replaying import UnknownRecord
from penstock.transactions.record_codec import TransactionRecord, decode_record, encode_record
from penstock.transactions.transaction import NOBODY, Identity, Transaction, TransactionState

identities = st.builds(
    Identity,
    st.integers(0, 2**63 - 1).map(ProducerId),
    st.integers(0, 2**15 - 1).map(ProducerEpoch),
)
partitions = st.builds(TopicPartition, st.text(min_size=1, max_size=9), st.integers(0, 2**31 - 1))
transactions = st.builds(
    Transaction,
    producer=identities,
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from(sorted(set(TransactionState) - {TransactionState.EMPTY})),
    partitions=st.frozensets(partitions, max_size=6),
    start_ms=st.integers(-1, 2**62),
    update_ms=st.integers(-1, 2**62),
    version=st.integers(0, 2),
    earlier=st.one_of(st.just(NOBODY), identities),
    next_producer_id=st.integers(-1, 2**63 - 1).map(ProducerId),
    is_held=st.booleans(),
)


@given(transactional_id=st.text(max_size=20), value=st.one_of(st.none(), transactions))
def test_transaction_records_round_trip(transactional_id: str, value: Transaction | None) -> None:
    record = TransactionRecord(transactional_id, value)
    assert decode_record(*encode_record(record)) == record


def test_transaction_record_has_the_layout_of_kafka() -> None:
    value = Transaction(
        Identity(ProducerId(5), ProducerEpoch(2)),
        60_000,
        TransactionState.ONGOING,
        frozenset({TopicPartition("t", 1), TopicPartition("t", 0)}),
        start_ms=7,
        update_ms=8,
        version=2,
    )
    assert encode_record(TransactionRecord("id", value)) == (
        bytes.fromhex("0000 0002 6964"),
        bytes.fromhex(
            "0001 0000000000000005 0002 0000ea60 01"
            "02 0274 03 00000000 00000001 00"
            "0000000000000008 0000000000000007"
            "01 02 02 0002"
        ),
    )


def test_record_without_an_open_transaction_has_null_partitions() -> None:
    value = Transaction(Identity(ProducerId(5), ProducerEpoch(2)), 1, version=0)
    _, encoded = encode_record(TransactionRecord("id", value))
    assert encoded is not None
    assert encoded[17:18] == b"\x00"
    assert decode_record(b"\x00\x00\x00\x02id", encoded).value == value


def test_version_0_of_the_transaction_value_is_read() -> None:
    encoded = bytes.fromhex(
        "0000 0000000000000005 0002 0000ea60 01"
        "00000001 0001 74 00000002 00000000 00000001"
        "0000000000000008 0000000000000007"
    )
    value = decode_record(b"\x00\x00\x00\x02id", encoded).value
    assert value is not None
    assert value.partitions == {TopicPartition("t", 0), TopicPartition("t", 1)}
    assert (value.update_ms, value.start_ms, value.earlier) == (8, 7, NOBODY)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\x00\x01\x00\x02id", None),
        (b"\x00\x00\x00\x02id.", None),
        (b"\x00\x00\x00\x02id", b"\x00\x02"),
        (b"\x00\x00\x00\x02id", b""),
    ],
)
def test_records_of_other_versions_are_decoded_as_unknown(key: bytes, value: bytes | None) -> None:
    with pytest.raises(UnknownRecord):
        decode_record(key, value)


@given(value=transactions, data=st.data())
def test_damaged_transaction_record_is_read_or_unknown(value: Transaction, data: st.DataObject) -> None:
    key, encoded = encode_record(TransactionRecord("id", replace(value, is_held=True)))
    assert encoded is not None
    damaged = bytearray(encoded)
    for place in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(UnknownRecord):
        decode_record(key, bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))
