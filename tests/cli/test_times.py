from __future__ import annotations

import pytest

from penstock.cli.failures import Failure
from penstock.cli.times import parse_time_ms, show_time

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("2023-11-14T22:13:20Z", NOW_MS),
        ("2023-11-14T23:13:20+01:00", NOW_MS),
        ("2023-11-14 22:13:20", NOW_MS),
        ("2023-11-14", 1_699_920_000_000),
        ("1700000000000", NOW_MS),
        ("90s", NOW_MS - 90_000),
        ("15m", NOW_MS - 900_000),
        ("2h", NOW_MS - 7_200_000),
        ("7d", NOW_MS - 604_800_000),
        ("1w", NOW_MS - 604_800_000),
    ],
)
def test_a_time_is_absolute_or_so_long_ago(text: str, time_ms: int) -> None:
    assert parse_time_ms(text, NOW_MS) == time_ms


@pytest.mark.parametrize("text", ["yesterday", "", "12", "2h30m", "2023-13-01", "-5m"])
def test_invalid_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Failure) as refusal:
        parse_time_ms(text, NOW_MS)
    assert "2026-03-01T12:00:00Z" in refusal.value.hint


@pytest.mark.parametrize(
    ("time_ms", "shown"),
    [(NOW_MS, "2023-11-14T22:13:20.000Z"), (-1, "-"), (2**62, str(2**62))],
)
def test_time_is_shown_in_utc_or_as_a_dash_or_number(time_ms: int, shown: str) -> None:
    assert show_time(time_ms) == shown
