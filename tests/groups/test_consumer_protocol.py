"""Bytes that consumers exchange through a classic group."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from support.subscriptions import partitions, subscriptions


def refusal(decode: Callable[[bytes], object], data: bytes) -> ErrorCode | None:
    try:
        decode(data)
    except BrokerError as error:
        return error.code
    return None


@given(subscriptions())
def test_subscription_round_trips(subscription: Subscription) -> None:
    assert decode_subscription(encode_subscription(subscription)) == subscription


@given(partitions, st.integers(0, 3))
def test_assignment_round_trips(assignment: dict[str, frozenset[int]], version: int) -> None:
    assert decode_assignment(encode_assignment(assignment, version)) == assignment


@given(subscriptions())
def test_subscription_bytes_follow_the_specification(subscription: Subscription) -> None:
    entity = import_module(
        f"kio.schema.consumer_protocol_subscription.v{subscription.version}.data"
    ).ConsumerProtocolSubscription
    encoded = encode_subscription(subscription)
    message, length = entity_reader(entity)(encoded, 2)
    assert length == len(encoded) - 2
    assert set(message.topics) == subscription.topics
    written = BytesIO()
    entity_writer(entity)(written, message)
    assert written.getvalue() == encoded[2:]


def test_empty_assignment_bytes_decode_to_no_partitions() -> None:
    assert decode_assignment(b"") == {}


def test_newer_subscription_version_is_read_up_to_the_known_fields() -> None:
    encoded = encode_subscription(Subscription(3, frozenset({"foo"}), {"foo": frozenset({1})}, "rack"))
    newer = b"\x00\x09" + encoded[2:] + b"something new"
    assert decode_subscription(newer).topics == {"foo"}


def test_partitions_of_a_topic_named_twice_are_merged() -> None:
    entry = b"\x00\x01a\x00\x00\x00\x01\x00\x00\x00"
    assert decode_assignment(
        b"\x00\x00\x00\x00\x00\x02" + entry + b"\x01" + entry + b"\x02" + b"\xff" * 4
    ) == {"a": {1, 2}}


@pytest.mark.parametrize("decode", [decode_subscription, decode_assignment])
@given(data=st.binary(min_size=1, max_size=60))
def test_random_bytes_are_decoded_or_get_inconsistent_group_protocol(
    decode: Callable[[bytes], object], data: bytes
) -> None:
    assert refusal(decode, data) in (None, ErrorCode.inconsistent_group_protocol)


@given(subscription=subscriptions(), data=st.data())
def test_truncated_or_damaged_subscription_is_decoded_or_refused(
    subscription: Subscription, data: st.DataObject
) -> None:
    encoded = bytearray(encode_subscription(subscription))
    place = data.draw(st.integers(0, len(encoded) - 1))
    encoded[place] = data.draw(st.integers(0, 255))
    del encoded[data.draw(st.integers(0, len(encoded))) :]
    assert refusal(decode_subscription, bytes(encoded)) in (None, ErrorCode.inconsistent_group_protocol)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\x7f\xff\xff\xff",
        b"\x00\x00\xff\xff\xff\xff",
        b"\x00\x01\x00\x00\x00\x01\x00\x02\xff\xfe" + b"\xff" * 4 + bytes(4),
    ],
)
def test_hostile_subscriptions_are_refused(data: bytes) -> None:
    with pytest.raises(BrokerError) as refused:
        decode_subscription(data)
    assert refused.value.code is ErrorCode.inconsistent_group_protocol
