"""Filter pushdown, if `spark.sql.python.filterPushdown.enabled` is set: filters select topics, partitions,
offsets and a first timestamp.

Spark applies all filters again, so a pushed filter may keep rows that do not match.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

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
            if getattr(each, "attribute", ()) == _TIME:
                selected = _since(each, plan, selected)
            else:
                selected = [kept for range_ in selected if (kept := _apply(each, range_)) is not None]
        return selected


def _since(given: Filter, plan: Plan, ranges: list[OffsetRange]) -> list[OffsetRange]:
    """Parts of the ranges that start at the first record at or after a time. All records before that record are older.
    Records after it may be older too, so a filter for an end time does not limit what is read.
    """
    assert isinstance(given, _LOWER)
    time_ms = math.floor(given.value.timestamp() * 1000)
    found = plan.find({(each.topic, each.partition): time_ms for each in ranges})
    later = [
        replace(each, start=max(each.start, found[each.topic, each.partition]))
        for each in ranges
        if found[each.topic, each.partition] >= 0
    ]
    return [each for each in later if len(each)]


_TIME = ("timestamp",)
_LOWER = (EqualTo, GreaterThan, GreaterThanOrEqual)
_UNDERSTOOD = (EqualTo, In, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


def _is_understood(given: Filter) -> bool:
    if getattr(given, "attribute", ()) == _TIME:
        return isinstance(given, _LOWER) and isinstance(given.value, datetime) and given.value.year > 1970
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
