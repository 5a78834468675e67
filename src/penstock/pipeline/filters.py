"""Filter pushdown, if `spark.sql.python.filterPushdown.enabled` is set: filters select topics, partitions and
offsets.

Spark applies all filters again, so a pushed filter may keep rows that do not match.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from penstock.pipeline.options import SourceOptions
from penstock.pipeline.planning import Plan
from penstock.pipeline.ranges import OffsetRange
from penstock.pipeline.source import BatchReader


class FilteringReader(BatchReader):
    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._filters = [each for each in filters if _is_understood(each)]
        return filters

    def select(self, plan: Plan) -> list[OffsetRange]:
        selected = super().select(plan)
        for each in self._filters:
            selected = [kept for range_ in selected if (kept := _apply(each, range_)) is not None]
        return selected


_UNDERSTOOD = (EqualTo, In, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


def _is_understood(given: Filter) -> bool:
    return isinstance(given, _UNDERSTOOD) and given.attribute in (("topic",), ("partition",), ("offset",))


def _apply(given: Filter, range_: OffsetRange) -> OffsetRange | None:
    """Part of the range that can match the filter; None if there is none."""
    assert isinstance(given, _UNDERSTOOD)
    [column] = given.attribute
    values = given.value if isinstance(given, In) else (given.value,)
    if column in ("topic", "partition"):
        return range_ if any(_holds(given, getattr(range_, column), value) for value in values) else None
    low, high = range_.start, range_.end
    if isinstance(given, EqualTo | In):
        low, high = max(low, min(values, default=high)), min(high, max(values, default=low) + 1)
    elif isinstance(given, GreaterThan | GreaterThanOrEqual):
        low = max(low, given.value + isinstance(given, GreaterThan))
    else:
        high = min(high, given.value + isinstance(given, LessThanOrEqual))
    return replace(range_, start=low, end=high) if low < high else None


def _holds(given: Filter, actual: str | int, value: str | int) -> bool:
    if isinstance(given, EqualTo | In):
        return actual == value
    if isinstance(given, GreaterThan):
        return actual > value  # type: ignore[operator]
    if isinstance(given, GreaterThanOrEqual):
        return actual >= value  # type: ignore[operator]
    if isinstance(given, LessThan):
        return actual < value  # type: ignore[operator]
    return actual <= value  # type: ignore[operator]
