"""Subscriptions and assignments of the consumer protocol from untrusted clients: they are decoded, or refused."""

from __future__ import annotations

from collections.abc import Callable

from fuzz_harness import fuzz, mutations
from hypothesis import strategies as st

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from support.subscriptions import partitions, subscriptions


def reads_or_refuses(decode: Callable[[bytes], object]) -> Callable[[bytes], None]:
    def target(data: bytes) -> None:
        refused = ErrorCode.none
        try:
            decode(data)
        except BrokerError as error:
            refused = error.code
        assert refused in (ErrorCode.none, ErrorCode.inconsistent_group_protocol)

    return target


def test_random_subscription_bytes_are_decoded_or_refused() -> None:
    encoded = subscriptions().map(encode_subscription)
    fuzz(reads_or_refuses(decode_subscription), mutations(encoded) | st.binary(max_size=60))


def test_random_assignment_bytes_are_decoded_or_refused() -> None:
    encoded = st.builds(encode_assignment, partitions, st.integers(0, 3))
    fuzz(reads_or_refuses(decode_assignment), mutations(encoded) | st.binary(max_size=60))
