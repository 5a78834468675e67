"""Headers that say until when a message is of use."""

from __future__ import annotations

import pytest

from penstock.records.content import Headers
from penstock.records.expiry import is_expired, read_time

STORED_MS, NOW_MS = 1_769_846_400_000, 1_769_846_400_500


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((), False),
        ((("penstock-ttl-ms", b"500"),), True),
        ((("penstock-ttl-ms", b"501"),), False),
        ((("penstock-ttl-ms", b"0"),), True),
        ((("penstock-expires-at", b"1769846400500"),), True),
        ((("penstock-expires-at", b"1769846400501"),), False),
        ((("penstock-expires-at", b"2026-01-31T09:00:00.500+01:00"),), True),
        ((("penstock-expires-at", b"2026-01-31T09:00:01+01:00"),), False),
        ((("penstock-ttl-ms", b"9999"), ("penstock-expires-at", b"5")), True),
        ((("penstock-ttl-ms", b"soon"), ("penstock-expires-at", b"2001-01-01T00:00:00")), False),
        ((("penstock-ttl-ms", None), ("penstock-expires-at", b"\xff")), False),
        ((("penstock-ttl-ms", b"-5"),), False),
    ],
)
def test_expired_records_are_found(headers: Headers, expected: bool) -> None:
    assert is_expired(STORED_MS, headers, NOW_MS) is expected


def test_times_are_rounded_up() -> None:
    assert read_time(b"2026-01-31T08:00:00.0001Z") == STORED_MS + 1
    assert read_time(b"2026-01-31T08:00:00") is None
