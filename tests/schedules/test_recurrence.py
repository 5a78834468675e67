"""Times of cron expressions and intervals: fields, aliases, time zones, daylight saving time, wrong expressions."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BrokerError
from penstock.schedules.recurrence import next_times, parse_recurrence

BERLIN = ZoneInfo("Europe/Berlin")


def ms(*parts: int, zone: str = "Europe/Berlin") -> int:
    return int(datetime(*parts, tzinfo=ZoneInfo(zone)).timestamp()) * 1000  # type: ignore[misc,arg-type]


def local(times: list[int]) -> list[str]:
    return [f"{datetime.fromtimestamp(each / 1000, BERLIN):%m-%d %H:%M:%S}" for each in times]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 9 * * MON-FRI", ["03-06 09:00:00", "03-09 09:00:00"]),
        ("30 */6 * * *", ["03-06 00:30:00", "03-06 06:30:00"]),
        ("15 0 9 * * *", ["03-06 09:00:15", "03-07 09:00:15"]),
        ("*/20 * * * * *", ["03-06 00:00:20", "03-06 00:00:40"]),
        ("@hourly", ["03-06 01:00:00", "03-06 02:00:00"]),
        ("@daily", ["03-07 00:00:00", "03-08 00:00:00"]),
        ("@midnight", ["03-07 00:00:00", "03-08 00:00:00"]),
        ("@weekly", ["03-08 00:00:00", "03-15 00:00:00"]),
        ("@monthly", ["04-01 00:00:00", "05-01 00:00:00"]),
        ("@yearly", ["01-01 00:00:00", "01-01 00:00:00"]),
        ("@every 90s", ["03-06 00:01:30", "03-06 00:03:00"]),
        ("@every 1h30m", ["03-06 01:30:00", "03-06 03:00:00"]),
    ],
)
def test_expression_has_its_next_times(expression: str, expected: list[str]) -> None:
    start = ms(2026, 3, 6)
    assert local(next_times(parse_recurrence(expression, "Europe/Berlin", start), start, 2)) == expected


def test_time_of_day_fires_once_when_the_hour_is_repeated() -> None:
    start = ms(2026, 10, 25)
    times = next_times(parse_recurrence("30 2 * * *", "Europe/Berlin", start), start, 2)
    assert times == [ms(2026, 10, 25, 0, 30, zone="UTC"), ms(2026, 10, 26, 1, 30, zone="UTC")]


def test_time_of_day_fires_after_the_gap_when_it_does_not_exist() -> None:
    start = ms(2026, 3, 29)
    assert local(next_times(parse_recurrence("30 2 * * *", "Europe/Berlin", start), start, 1)) == [
        "03-29 03:00:00"
    ]


def test_times_increase_from_within_the_repeated_hour() -> None:
    within = ms(2026, 10, 25, 1, 15, zone="UTC")  # 02:15 for the second time
    assert parse_recurrence("30 2 * * *", "Europe/Berlin", within).after(within) == ms(
        2026, 10, 26, 1, 30, zone="UTC"
    )


@pytest.mark.parametrize(
    ("expression", "timezone"),
    [
        ("0 0 30 2 *", "UTC"),
        ("0 0 31 4,6 *", "UTC"),
        ("61 * * * *", "UTC"),
        ("* * * *", "UTC"),
        ("* * * * * * *", "UTC"),
        ("", "UTC"),
        ("@reboot", "UTC"),
        ("@every", "UTC"),
        ("@every 0s", "UTC"),
        ("@every -5s", "UTC"),
        ("@every 500ms", "UTC"),
        ("@every 400d", "UTC"),
        ("@every 5", "UTC"),
        ("*/0 * * * *", "UTC"),
        ("x" * 1_000, "UTC"),
        ("@daily", "Mars/Base"),
        ("@daily", ""),
        ("@daily", "../../etc/passwd"),
        ("@daily", "Europe"),
    ],
)
def test_wrong_expressions_and_time_zones_are_refused(expression: str, timezone: str) -> None:
    with pytest.raises(BrokerError):
        parse_recurrence(expression, timezone, ms(2026, 1, 1))


@given(
    st.sampled_from(
        ["*/7 * * * * *", "30 2 * * *", "0 9 * * MON-FRI", "@every 90s", "@hourly", "0 0 29 2 *"]
    ),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    st.integers(ms(2025, 1, 1), ms(2028, 1, 1)),
)
def test_times_increase_and_are_found_backwards(expression: str, timezone: str, start: int) -> None:
    recurrence = parse_recurrence(expression, timezone, ms(2025, 1, 1))
    first, second = next_times(recurrence, start, 2)
    assert start < first < second
    assert recurrence.at_or_before(first) == first
    assert recurrence.at_or_before(second - 1) == first


@given(st.text(max_size=40), st.text(max_size=20))
def test_any_text_is_a_recurrence_or_a_refusal(expression: str, timezone: str) -> None:
    with suppress(BrokerError):
        assert parse_recurrence(expression, timezone or "UTC", 0).after(0)
