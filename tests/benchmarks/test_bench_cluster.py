"""Calculations of the cluster benchmarks: latencies by second, CPU time by interval, columns."""

from __future__ import annotations

from math import inf

import pytest

from bench.comparison import DEFAULT, KAFKA, Bar, Metric, row_of
from bench.cpu_samples import cores_between
from bench.latencies import Latencies
from bench.measure import Spread
from bench.report import markdown
from bench.scenarios.cluster_pace import at_rate

SECOND_NS = 1_000_000_000


def latencies_of(by_second_ms: list[float]) -> Latencies:
    latencies = Latencies()
    for second, wait_ms in enumerate(by_second_ms):
        stamp_ns = 7 * SECOND_NS + second * SECOND_NS
        latencies.arrived([stamp_ns] * 10, stamp_ns + int(wait_ms * 1e6))
    return latencies


def test_latencies_count_from_the_due_time() -> None:
    latencies = latencies_of([5, 5, 900, 20])
    assert latencies.percentile_ms(0.99, 0, 2) == pytest.approx(5)
    assert latencies.percentile_ms(0.99, 0, 4) == pytest.approx(900)


def test_load_has_settled_when_no_later_second_exceeds_the_limit() -> None:
    latencies = latencies_of([5, 900, 500, 50, 500, 20, 20])
    assert latencies.settled_s(2, 7, 100) == 3
    assert latencies.settled_s(5, 7, 100) == 0
    assert latencies_of([900, 900]).settled_s(0, 2, 100) == 2


def test_a_second_without_messages_has_an_infinite_percentile() -> None:
    assert latencies_of([5]).percentile_ms(0.99, 3, 4) == inf


def test_processor_time_counts_only_the_measured_interval() -> None:
    samples = [(0.0, [0.0, 0.0]), (1.0, [1.0, 0.1]), (2.0, [1.5, 0.2]), (3.0, [2.0, 0.3]), (4.0, [9.0, 9.0])]
    assert cores_between(samples, 0.9, 3.5) == pytest.approx([0.5, 0.1])


def test_ten_times_the_rate_lies_on_the_line_through_both_measurements() -> None:
    assert at_rate(0.05, 0.25) == pytest.approx(0.5)


def test_the_default_durability_is_a_column_without_a_ratio() -> None:
    metric = Metric("rate", "rate", "MB/s", Bar("ratio", "at least", 2.0))
    row = row_of("produce", metric, {"Penstock": [20, 30], KAFKA: [10, 10], DEFAULT: [5, 7]})
    assert row.ratio == Spread(2.5, 2, 3)
    assert row.default == Spread(6, 5, 7)
    assert "| 25.0 (20.0 .. 30.0) | 6 (5 .. 7) | 10.0 | 2.5 (2 .. 3) | ≥ 2 x | met |" in markdown([row])


def test_tables_without_the_default_durability_have_no_column_for_it() -> None:
    row = row_of("produce", Metric("rate", "rate", "MB/s"), {"Penstock": [20], KAFKA: [10]})
    assert "default" not in markdown([row])
