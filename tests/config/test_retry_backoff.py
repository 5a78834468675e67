"""The back-off of share groups: its grammar, its delays and its jitter."""

from __future__ import annotations

import re

import pytest

from penstock.config.dead_letter_options import parse_dead_letter_topic
from penstock.config.retry_backoff import (
    MAX_DELAY_MS,
    NO_BACKOFF,
    delay_text,
    parse_delay_ms,
    parse_retry_backoff,
)


@pytest.mark.parametrize(
    ("text", "delays"),
    [
        ("1000", [1_000, 1_000]),
        ("1s,10s,1m", [1_000, 10_000, 60_000, 60_000]),
        (" 0 , 250ms , 2h ", [0, 250, 7_200_000]),
        ("365d", [MAX_DELAY_MS]),
        ("", [0, 0]),
    ],
)
def test_list_gives_a_delay_for_each_delivery(text: str, delays: list[int]) -> None:
    backoff = parse_retry_backoff(text)
    assert [backoff.delay_ms(count, 0) for count in range(1, len(delays) + 1)] == delays


@pytest.mark.parametrize("text", ["0ms", "1ms", "1500ms", "90s", "36h", "10d", "2w"])
def test_time_is_shown_in_its_largest_unit(text: str) -> None:
    assert delay_text(parse_delay_ms(text)) == text


def test_exponential_doubles_up_to_its_maximum_less_a_quarter() -> None:
    backoff = parse_retry_backoff("exponential:1s:10m")
    for count, full_ms in ((1, 1_000), (2, 2_000), (5, 16_000), (20, 600_000), (100, 600_000)):
        delays = {backoff.delay_ms(count, offset) for offset in range(1_000)}
        assert min(delays) >= full_ms * 3 // 4
        assert max(delays) <= full_ms
        assert len(delays) > 200


@pytest.mark.parametrize(
    "text",
    [
        ",".join(["1s"] * 1_000),
        "-1",
        "1s,-5",
        "366d",
        "soon",
        "1s,,2s",
        "1.5s",
        "exponential",
        "exponential:1s",
        "exponential:10m:1s",
        "exponential:0:1s",
        "exponential:1s:2s:3s",
        "9" * 400,
    ],
)
def test_malformed_back_off_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\d|:|duration"):
        parse_retry_backoff(text)


@pytest.mark.parametrize("name", ["__consumer_offsets", "no such name", "x" * 250])
def test_internal_and_malformed_dead_letter_topics_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(name)):
        parse_dead_letter_topic(name)
    assert parse_dead_letter_topic("orders-dead") == "orders-dead"


def test_back_off_is_shown_as_it_was_written() -> None:
    assert str(parse_retry_backoff("1s, 10s")) == "1s, 10s"
    assert str(NO_BACKOFF) == ""
