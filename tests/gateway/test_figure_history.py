"""Figures over time: steps without a value stay empty, and memory is bounded by the busiest names."""

from __future__ import annotations

from penstock.gateway.view import history
from penstock.gateway.view.history import COARSE_STEPS, FINE_STEPS, History, Ring, Series

MINUTE = 60_000


def test_ring_keeps_the_last_values_with_gaps() -> None:
    ring = Ring(1_000, 4)
    ring.put(1_000, 1.0)
    ring.put(3_500, 3.0)
    assert ring.until(4_000) == [1.0, None, 3.0, None]
    ring.put(10_000, 10.0)
    assert ring.until(10_000) == [None, None, None, 10.0]
    ring.put(2_000, 99.0)
    assert ring.until(10_000) == [None, None, None, 10.0], "a clock that went back changes nothing"


def test_coarse_step_is_the_mean_of_its_minute() -> None:
    series = Series()
    for step in range(60):
        series.put(step * 2_000, float(step // 30))
    assert series.coarse.until(MINUTE)[-2:] == [0.0, 1.0]
    assert len(series.fine.until(MINUTE)) == FINE_STEPS
    assert len(series.coarse.until(MINUTE)) == COARSE_STEPS


def test_busier_name_takes_the_place_of_the_idlest() -> None:
    kept = History()
    for number in range(history.MAX_NAMES):
        kept.put("topic", f"t{number}", 0, {"records": float(number + 1)})
    kept.put("topic", "idle", 0, {"records": 0.5})
    assert "idle" not in kept.names("topic")
    kept.put("topic", "busy", 0, {"records": 5_000.0})
    assert "busy" in kept.names("topic")
    assert "t0" not in kept.names("topic")
    assert len(kept.names("topic")) == history.MAX_NAMES


def test_all_series_fit_into_twenty_megabytes() -> None:
    one = Series()
    used = sum(len(ring._values) * ring._values.itemsize for ring in (one.fine, one.coarse))
    figures_of_kinds = 2 + 1 + 3  # topics, groups, brokers
    assert used * figures_of_kinds * history.MAX_NAMES < 20_000_000
