"""Codec of group records: Kafka's layout to the byte, round trips, and malformed bytes."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given

from penstock.groups.record_codec import decode_record, encode_record
from penstock.groups.records import (
    ClassicGroupKey,
    ClassicGroupValue,
    ClassicMember,
    ClassicProtocols,
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CurrentAssignmentKey,
    CurrentAssignmentValue,
    GroupRecord,
    MemberState,
    OffsetKey,
    OffsetValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetMemberKey,
    TargetMemberValue,
)
from penstock.model import NO_TOPIC_ID, TopicId
from penstock.state_log.replaying import UnknownRecord
from support.group_records import group_records

TOPIC_ID = TopicId(UUID(int=0x0102030405060708090A0B0C0D0E0F10))
ID_BYTES = TOPIC_ID.bytes

LAYOUTS = [
    (
        GroupRecord(OffsetKey("g", "t", 7), OffsetValue(5, 2, "m", NO_TOPIC_ID, 9)),
        b"\0\x01\0\x01g\0\x01t\0\0\0\x07",
        b"\0\x03\0\0\0\0\0\0\0\x05\0\0\0\x02\0\x01m\0\0\0\0\0\0\0\x09",
    ),
    (
        GroupRecord(OffsetKey("g", "t", 7), OffsetValue(5, 2, "m", TOPIC_ID, 9)),
        b"\0\x01\0\x01g\0\x01t\0\0\0\x07",
        b"\0\x04\0\0\0\0\0\0\0\x05\0\0\0\x02\x02m\0\0\0\0\0\0\0\x09\x01\0\x10" + ID_BYTES,
    ),
    (
        GroupRecord(
            ClassicGroupKey("g"),
            ClassicGroupValue(
                "consumer", 3, None, "m1", 9, (ClassicMember("m1", None, "c", "/h", 4, 5, b"s", b"aa"),)
            ),
        ),
        b"\0\x02\0\x01g",
        b"\0\x03"
        b"\0\x08consumer"
        b"\0\0\0\x03"
        b"\xff\xff"
        b"\0\x02m1"
        b"\0\0\0\0\0\0\0\x09"
        b"\0\0\0\x01"
        b"\0\x02m1"
        b"\xff\xff"
        b"\0\x01c"
        b"\0\x02/h"
        b"\0\0\0\x04"
        b"\0\0\0\x05"
        b"\0\0\0\x01s"
        b"\0\0\0\x02aa",
    ),
    (
        GroupRecord(ConsumerGroupKey("g"), ConsumerGroupValue(4, 6)),
        b"\0\x03\0\x01g",
        b"\0\0\0\0\0\x04\x01\0\x08\0\0\0\0\0\0\0\x06",
    ),
    (
        GroupRecord(
            ConsumerMemberKey("g", "m1"),
            ConsumerMemberValue(
                None, "r", "c", "/h", frozenset("ba"), None, 4, "x", ClassicProtocols(5, (("range", b"s"),))
            ),
        ),
        b"\0\x05\0\x01g\0\x02m1",
        b"\0\0"
        b"\0"
        b"\x02r"
        b"\x02c"
        b"\x03/h"
        b"\x03\x02a\x02b"
        b"\0"
        b"\0\0\0\x04"
        b"\x02x"
        b"\x01\0\x10"
        b"\x01"
        b"\0\0\0\x05"
        b"\x02"
        b"\x06range"
        b"\x02s"
        b"\0"
        b"\0",
    ),
    (
        GroupRecord(TargetEpochKey("g"), TargetEpochValue(4)),
        b"\0\x06\0\x01g",
        b"\0\0\0\0\0\x04\0",
    ),
    (
        GroupRecord(TargetMemberKey("g", "m1"), TargetMemberValue({TOPIC_ID: frozenset({1, 0})})),
        b"\0\x07\0\x01g\0\x02m1",
        b"\0\0\x02" + ID_BYTES + b"\x03\0\0\0\0\0\0\0\x01\0\0",
    ),
    (
        GroupRecord(
            CurrentAssignmentKey("g", "m1"),
            CurrentAssignmentValue(4, 3, MemberState.UNREVOKED_PARTITIONS, {}, {TOPIC_ID: frozenset({2})}),
        ),
        b"\0\x08\0\x01g\0\x02m1",
        b"\0\0\0\0\0\x04\0\0\0\x03\x01\x01\x02" + ID_BYTES + b"\x02\0\0\0\x02\0\0",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), LAYOUTS, ids=lambda part: type(part).__name__)
def test_group_records_have_the_layout_of_kafka(record: GroupRecord, key: bytes, value: bytes) -> None:
    assert encode_record(record) == (key, value)
    assert decode_record(key, value) == record


@given(group_records())
def test_every_group_record_round_trips(record: GroupRecord) -> None:
    assert decode_record(*encode_record(record)) == record


def test_tombstone_has_no_value() -> None:
    tombstone = GroupRecord(OffsetKey("g", "t", 7), None)
    key, value = encode_record(tombstone)
    assert value is None
    assert decode_record(key, value) == tombstone


OFFSET_KEY = b"\0\0\0\x01g\0\x01t\0\0\0\x07"
TIME = b"\0\0\0\0\0\0\0\x09"
FIVE = b"\0\0\0\0\0\0\0\x05"


@pytest.mark.parametrize(
    "value",
    [
        b"\0\0" + FIVE + b"\0\x01m" + TIME,
        b"\0\x01" + FIVE + b"\0\x01m" + TIME + b"\0\0\0\0\0\0\0\x0a",
        b"\0\x02" + FIVE + b"\0\x01m" + TIME,
    ],
    ids=["v0", "v1 with its expiry", "v2"],
)
def test_offset_values_of_older_versions_are_read(value: bytes) -> None:
    assert decode_record(OFFSET_KEY, value).value == OffsetValue(5, -1, "m", NO_TOPIC_ID, 9)


def test_version_0_group_record_has_one_timeout_for_session_and_rebalance() -> None:
    value = (
        b"\0\0"
        b"\0\x08consumer"
        b"\0\0\0\x03"
        b"\0\x05range"
        b"\0\x02m1"
        b"\0\0\0\x01"
        b"\0\x02m1"
        b"\0\x01c"
        b"\0\x02/h"
        b"\0\0\0\x05"
        b"\0\0\0\x01s"
        b"\0\0\0\x02aa"
    )
    member = ClassicMember("m1", None, "c", "/h", 5, 5, b"s", b"aa")
    decoded = decode_record(b"\0\x02\0\x01g", value).value
    assert decoded == ClassicGroupValue("consumer", 3, "range", "m1", -1, (member,))


def test_flexible_version_of_a_classic_group_is_read() -> None:
    value = (
        b"\0\x04"
        b"\x09consumer"
        b"\0\0\0\x03"
        b"\0"
        b"\x03m1" + TIME + b"\x02"
        b"\x03m1"
        b"\0"
        b"\x02c"
        b"\x03/h"
        b"\0\0\0\x04"
        b"\0\0\0\x05"
        b"\x02s"
        b"\x03aa"
        b"\0"
        b"\0"
    )
    member = ClassicMember("m1", None, "c", "/h", 4, 5, b"s", b"aa")
    decoded = decode_record(b"\0\x02\0\x01g", value).value
    assert decoded == ClassicGroupValue("consumer", 3, None, "m1", 9, (member,))


def test_tagged_fields_of_later_versions_are_skipped() -> None:
    value = b"\0\0\0\0\0\x04\x02\0\x08\0\0\0\0\0\0\0\x06\x01\x08" + TIME
    assert decode_record(b"\0\x03\0\x01g", value).value == ConsumerGroupValue(4, 6)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\0\x04\0\x01g", b"\0\0"),
        (b"\0\x0b\0\x01g", b"\0\0"),
        (b"\0\x03\0\x02g", None),
        (b"\0\x03\0\x01gg", None),
        (b"\0\x03\0\x01\xff", None),
        (b"\0\x03\0\x01g", b""),
        (b"\0\x03\0\x01g", b"\0\x01\0\0\0\x04\0"),
        (b"\0\x03\0\x01g", b"\0\0\0\0\0\x04\0\0"),
        (OFFSET_KEY, b"\0\x05" + FIVE + b"\0\0\0\0\x01" + TIME + b"\0"),
        (b"\0\x08\0\x01g\0\x01m", b"\0\0\0\0\0\x04\0\0\0\x03\x09\x01\x01\0"),
    ],
    ids=[
        "no key",
        "kind that is no more",
        "kind of another group type",
        "key cut short",
        "bytes behind the key",
        "key that is not UTF-8",
        "empty value",
        "later version",
        "bytes behind the value",
        "later version of an offset",
        "state that there is not",
    ],
)
def test_malformed_record_is_an_unknown_record(key: bytes, value: bytes | None) -> None:
    with pytest.raises(UnknownRecord):
        decode_record(key, value)
