"""Records of retry topics, and the names of such topics."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.retry_backoff import parse_retry_backoff
from penstock.delay.headers import InvalidDelay
from penstock.delay.retry_names import retry_topic
from penstock.delay.retry_policy import RetryPolicy, default_policy, read_policy
from penstock.delay.retrying import RetryRules
from penstock.errors import ErrorCode, InvalidBatch

RULES = RetryRules(3, parse_retry_backoff("1s,10s"), "letters", 5_000)


def test_the_first_failure_gets_the_first_delay() -> None:
    headers = RULES.counted((("a", b"b"),), b"", 0)
    assert headers == (("a", b"b"), ("penstock-retry-attempts", b"1"), ("penstock-delay-ms", b"1000"))


def test_a_later_failure_counts_on_and_forgets_the_earlier_delivery() -> None:
    before = (
        ("penstock-origin-offset", b"7"),
        ("penstock-origin-timestamp", b"8"),
        ("penstock-retry-attempts", b"1"),
    )
    assert RULES.counted(before, b"", 0) == (
        ("penstock-retry-attempts", b"2"),
        ("penstock-delay-ms", b"5000"),  # at most delivery.delay.max.ms
    )


def test_a_delay_of_the_producer_stays() -> None:
    own = (("penstock-delay-ms", b"5"),)
    assert RULES.counted(own, b"", 0) == (*own, ("penstock-retry-attempts", b"1"))


def test_a_cancellation_is_no_attempt() -> None:
    cancel = (("penstock-cancel", b"5"),)
    assert RULES.counted(cancel, b"", 0) == cancel


def test_the_last_failure_is_refused_and_names_the_dead_letter_topic() -> None:
    with pytest.raises(InvalidBatch, match="letters") as refused:
        RULES.counted((("penstock-retry-attempts", b"2"),), b"", 4)
    assert refused.value.code is ErrorCode.policy_violation
    assert refused.value.records == (4,)


@pytest.mark.parametrize("value", [b"", b"-1", b"many", None, b"9" * 30])
def test_a_malformed_number_of_attempts_is_refused(value: bytes | None) -> None:
    with pytest.raises(InvalidDelay, match="penstock-retry-attempts"):
        RULES.counted((("penstock-retry-attempts", value),), b"", 0)


@given(
    st.lists(st.text(alphabet="ab.-_x2e/é \0", min_size=1, max_size=300), min_size=2, max_size=2, unique=True)
)
def test_topics_of_two_groups_have_valid_names_that_do_not_collide(groups: list[str]) -> None:
    names = [retry_topic(group) for group in groups]
    for name in names:
        assert re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name)
        assert name.endswith(".retry")
    assert names[0].replace(".", "_") != names[1].replace(".", "_")


def test_plain_group_ids_are_kept() -> None:
    assert retry_topic("order_service-2") == "order_service-2.retry"


def test_a_policy_is_read_from_the_configs_that_hold_it() -> None:
    policy = RetryPolicy("billing", 7, "1s", "letters")
    assert read_policy("billing", policy.topic_configs) == policy
    assert read_policy("other", policy.topic_configs) is None
    assert default_policy("billing").dead_letter == "billing.dead"
