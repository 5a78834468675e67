"""Interleaved rounds: each round measures every server once, in an order that rotates, and ratios are taken
within a round.

Disturbances of the machine affect all servers of a round, so ratios are stable where absolute figures
vary.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bench.driver import Figures
from bench.measure import Spread
from bench.servers import DefaultPenstock, Kafka, OtherCommit
from bench.target import Target

Direction = Literal["at least", "at most"]
KAFKA = Kafka.name
BESIDE = (KAFKA, OtherCommit.name)
"""Servers of which one is compared with."""
DEFAULT = DefaultPenstock.name
"""Server that is measured in the same rounds without a ratio."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Target of a row: a ratio to Kafka, or an absolute value if there is nothing to compare with."""

    of: Literal["ratio", "value"]
    direction: Direction
    limit: float

    def holds(self, value: float) -> bool:
        return value >= self.limit if self.direction == "at least" else value <= self.limit


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of a measurement that becomes a row of the report."""

    key: str
    label: str
    unit: str
    bar: Bar | None = None


@dataclass(frozen=True, slots=True)
class Row:
    scenario: str
    label: str
    unit: str
    penstock: Spread | None
    kafka: Spread | None = None
    ratio: Spread | None = None
    bar: Bar | None = None
    default: Spread | None = None

    @property
    def verdict(self) -> bool | None:
        """Whether the median reaches the target; None without a target or without figures."""
        measured = self.ratio if self.bar and self.bar.of == "ratio" else self.penstock
        return self.bar.holds(measured.median) if self.bar and measured else None


Measure = Callable[[Target], Figures]


def compare(
    scenario: str,
    metrics: Sequence[Metric],
    servers: Sequence[Target],
    measure: Measure,
    *,
    rounds: int,
    warm_ups: int,
    say: Callable[[str], None],
) -> list[Row]:
    """Measure every server in each round, without the warm-up rounds, and return the rows."""
    rows: dict[str, list[Figures]] = {server.name: [] for server in servers}
    order = random.Random(scenario).sample(list(servers), len(servers))
    for number in range(-warm_ups, rounds):
        order = order[1:] + order[:1]
        for server in order:
            say(f"{scenario}: {_round_name(number, rounds)}, {server.name}")
            figures = measure(server)
            if number >= 0:
                rows[server.name].append(figures)
    return [
        row_of(scenario, metric, {name: [each[metric.key] for each in done] for name, done in rows.items()})
        for metric in metrics
    ]


def _round_name(number: int, rounds: int) -> str:
    return "warm-up" if number < 0 else f"round {number + 1} of {rounds}"


def row_of(scenario: str, metric: Metric, found: Mapping[str, Sequence[float]]) -> Row:
    """Rows from figures by server name; the figures of one round have the same index."""
    theirs = next((found[name] for name in BESIDE if name in found), ())
    default = found.get(DEFAULT, ())
    ours = next((values for name, values in found.items() if name not in (*BESIDE, DEFAULT)), ())
    ratios = [a / b for a, b in zip(ours, theirs, strict=False) if b]
    spreads = (_spread(ours), _spread(theirs), _spread(ratios))
    return Row(scenario, metric.label, metric.unit, *spreads, metric.bar, _spread(default))


def _spread(values: Sequence[float]) -> Spread | None:
    return Spread.of(values) if values else None
