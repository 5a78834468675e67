"""Records of `__share_group_state`: round trips, Kafka's bytes, and damaged ones."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import ShareKey, TopicId
from penstock.queues.record_codec import decode_record, encode_record
from penstock.queues.records import SnapshotValue, StateRecord, UpdateValue
from penstock.queues.states import NO_REASON, Letters, Reason, StateBatch
from penstock.state_log.partitioning import partition_of
from penstock.state_log.replaying import UnknownRecord

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
KEYS = st.builds(ShareKey, st.text(max_size=20), st.uuids().map(TopicId), INT32)
BATCHES = st.lists(
    st.builds(
        StateBatch,
        INT64,
        INT64,
        st.integers(-128, 127),
        st.integers(-(2**15), 2**15 - 1),
        st.just(0) | INT64,
        st.just(NO_REASON) | st.builds(Reason, st.integers(1, 2**15 - 1), st.text(max_size=20)),
        st.just(0) | INT64,
    ),
    max_size=5,
).map(tuple)
LETTERS = st.none() | st.builds(
    Letters, INT64, INT32, st.lists(st.tuples(INT64, INT64), max_size=4).map(tuple)
)
SNAPSHOTS = st.builds(SnapshotValue, INT32, INT32, INT32, INT64, INT32, INT64, INT64, BATCHES, LETTERS)
UPDATES = st.builds(UpdateValue, INT32, INT32, INT64, INT32, BATCHES, LETTERS)
RECORDS = st.builds(StateRecord, KEYS, SNAPSHOTS | UPDATES | st.none())
TOPIC = TopicId(UUID("01234567-89ab-cdef-0123-456789abcdef"))


@given(RECORDS)
def test_every_state_record_round_trips(record: StateRecord) -> None:
    assert decode_record(*encode_record(record)) == record


@given(RECORDS, st.data())
def test_damaged_state_records_are_decoded_as_unknown(record: StateRecord, data: st.DataObject) -> None:
    key, value = encode_record(record)
    if value is None:
        return
    length = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(UnknownRecord):
        decode_record(key, value[:length])


def test_share_update_has_the_layout_of_kafka() -> None:
    key, value = encode_record(
        StateRecord(ShareKey("g", TOPIC, 3), UpdateValue(1, 2, 10, 4, (StateBatch(10, 12, 2, 1),)))
    )
    assert key == b"\0\1" + b"\0\1g" + TOPIC.bytes + b"\0\0\0\3"
    batch = (10).to_bytes(8, "big") + (12).to_bytes(8, "big") + b"\2" + b"\0\1" + b"\0"
    tags = b"\1\0\4" + b"\0\0\0\4"
    assert value == b"\0\0" + b"\0\0\0\1" + b"\0\0\0\2" + (10).to_bytes(8, "big") + b"\2" + batch + tags


def test_share_partition_maps_to_the_state_partition_of_kafka() -> None:
    key = ShareKey("my-group", TOPIC, 0)
    assert key.name == "my-group:ASNFZ4mrze8BI0VniavN7w:0"
    text = 0
    for character in key.name:
        text = (31 * text + ord(character)) & 0xFFFFFFFF
    assert partition_of(key.name, 50) == (text & 0x7FFFFFFF) % 50
