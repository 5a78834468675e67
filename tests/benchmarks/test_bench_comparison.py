"""Calculations of the benchmark report: ratios within rounds, medians with ranges, bars."""

from __future__ import annotations

from bench.comparison import Bar, Metric, Row, compare
from bench.measure import Spread, percentile
from bench.report import markdown
from bench.servers import Server
from bench.target import Target


class Fake(Server):
    def __init__(self, name: str, figures: list[float]) -> None:
        self.name = name
        self.figures = figures


def measure(server: Target) -> dict[str, float]:
    assert isinstance(server, Fake)
    return {"rate": server.figures.pop(0)}


def run(ours: list[float], theirs: list[float], warm_ups: int = 0) -> Row:
    servers = [Fake("Penstock", ours), Fake("Kafka", theirs)]
    metric = Metric("rate", "rate", "MB/s", Bar("ratio", "at least", 1.2))
    rounds = len(ours) - warm_ups
    quiet = lambda text: None  # noqa: E731
    (row,) = compare("s", [metric], servers, measure, rounds=rounds, warm_ups=warm_ups, say=quiet)
    return row


def test_ratios_are_taken_within_a_round() -> None:
    row = run([10, 20, 30], [10, 10, 10])
    assert row.ratio == Spread(2.0, 1.0, 3.0)
    assert row.penstock == Spread(20, 10, 30)
    assert row.verdict is True


def test_warm_up_rounds_do_not_count() -> None:
    row = run([1, 50], [100, 100], warm_ups=1)
    assert row.ratio == Spread(0.5, 0.5, 0.5)
    assert row.verdict is False


def test_a_bar_on_a_value_needs_no_other_server() -> None:
    row = Row("start", "time", "s", Spread.of([0.4, 0.5, 0.9]), bar=Bar("value", "at most", 1.0))
    assert row.verdict is True
    assert Row("start", "time", "s", None, bar=row.bar).verdict is None


def test_the_table_names_missed_targets() -> None:
    table = markdown([run([10, 10], [10, 10])])
    assert "| 1 | ≥ 1.2 x | **not met** |" in table


def test_percentiles_are_of_the_nearest_rank() -> None:
    values = [float(value) for value in range(1, 101)]
    assert percentile(values, 0.5) == 51
    assert percentile(values, 0.99) == 100
    assert percentile([7.0], 0.99) == 7
