"""Rate at which replicas that are not in sync fetch."""

from __future__ import annotations

from random import Random

import pytest

from penstock.config.types import LONG_MAX
from penstock.replication.throttle import Throttle


class ManualClock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


def sent_in(throttle: Throttle, clock: ManualClock, seconds: float, largest: int, random: Random) -> int:
    """Bytes sent in that time by a sender that always has more: pieces as allowed, but at least a batch."""
    end, sent = clock.seconds + seconds, 0
    while True:
        allowance = throttle.allowance()
        if not allowance:
            clock.seconds += throttle.wait_seconds() + 1e-6
            if clock.seconds >= end:
                clock.seconds = end
                return sent
            continue
        batch = random.randint(1, largest)
        size = max(batch, min(allowance, largest))
        throttle.take(size)
        sent += size


@pytest.mark.parametrize(
    ("rate", "largest"),
    [(50_000, 100), (50_000, 1_000_000), (1_000_000, 64_000), (40_000_000, 16_000), (40_000_000, 1_000_000)],
)
def test_throttle_keeps_the_average_rate(rate: int, largest: int) -> None:
    clock = ManualClock()
    throttle = Throttle(clock)
    throttle.set_rate(rate)
    seconds = 60.0 + 10 * largest / rate
    sent = sent_in(throttle, clock, seconds, largest, Random(rate + largest))
    assert 0.8 * rate * seconds <= sent <= 1.2 * rate * seconds


def test_changed_throttle_rate_applies_at_once() -> None:
    clock = ManualClock()
    throttle = Throttle(clock)
    throttle.set_rate(10_000_000)
    sent_in(throttle, clock, 10, 1_000, Random(1))
    throttle.set_rate(100_000)
    sent = sent_in(throttle, clock, 20, 1_000, Random(2))
    assert 0.8 * 2_000_000 <= sent <= 1.2 * 2_000_000


def test_idle_time_does_not_raise_the_rate() -> None:
    clock = ManualClock()
    throttle = Throttle(clock)
    throttle.set_rate(1_000_000)
    clock.seconds += 3_600
    assert throttle.allowance() <= 1_000_000 / 4
    assert sent_in(throttle, clock, 10, 1_000, Random(3)) <= 1.2 * 10_000_000


def test_unset_rate_throttles_nothing() -> None:
    throttle = Throttle(ManualClock())
    assert throttle.is_off
    throttle.set_rate(1)
    assert not throttle.is_off
    assert not throttle.allowance()
    throttle.set_rate(LONG_MAX)
    assert throttle.is_off
