"""Headers of delayed messages."""

from __future__ import annotations

import pytest

from penstock.delay.headers import Delay, DelayHeaders, InvalidDelay, parse_time, read_delay_headers


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        (b"1769846400123", 1_769_846_400_123),
        (b"0", 0),
        (b"2026-01-31T09:00:00.123+01:00", 1_769_846_400_123),
        (b"2026-01-31T08:00:00Z", 1_769_846_400_000),
        (b"2026-01-31T08:00:00.0001Z", 1_769_846_400_001),
        (b"1969-12-31T23:59:59Z", -1_000),
    ],
)
def test_delay_headers_with_times_are_read(text: bytes, time_ms: int) -> None:
    assert parse_time(text) == time_ms


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ((("penstock-deliver-at", b"2026-01-31T09:00:00"),), "with its offset"),
        ((("penstock-deliver-at", b"2026-01-31"),), "with its offset"),
        ((("penstock-deliver-at", b"tomorrow"),), "give epoch milliseconds"),
        ((("penstock-deliver-at", b"-5"),), "give epoch milliseconds"),
        ((("penstock-deliver-at", None),), "give epoch milliseconds"),
        ((("penstock-deliver-at", b"999999999999999999"),), "after the year 9999"),
        ((("penstock-delay-ms", b"1.5"),), "whole number"),
        ((("penstock-delay-ms", b""),), "whole number"),
        ((("penstock-delay-ms", "٣".encode()),), "whole number"),
        ((("penstock-delay-ms", b"1"), ("penstock-delay-ms", b"1")), "repeated"),
        ((("penstock-delay-ms", b"1"), ("penstock-deliver-at", b"1")), "give one of"),
        ((("penstock-delay-ms", b"1"), ("penstock-cancel", b"1")), "give one of"),
        ((("penstock-cancel", b"x"),), "offset"),
    ],
)
def test_malformed_delay_headers_are_refused(
    headers: tuple[tuple[str, bytes | None], ...], problem: str
) -> None:
    with pytest.raises(InvalidDelay, match=problem):
        read_delay_headers(headers)


def test_a_record_without_our_headers_is_ordinary() -> None:
    assert read_delay_headers((("region", b"eu"), ("penstock-route", b"a.b"))) == DelayHeaders()


def test_relative_delays_count_from_the_stored_time() -> None:
    found = read_delay_headers((("penstock-delay-ms", b"500"),))
    assert found.delay == Delay(500, is_relative=True)
    assert found.delay.due_ms(1_000) == 1_500
    assert Delay(7, is_relative=False).due_ms(1_000) == 7
