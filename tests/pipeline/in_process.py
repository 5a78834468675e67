"""Stand-in for a Spark session that runs tasks in this process, for tests of the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql import SparkSession


class InProcess:
    """Session that runs tasks one after another, each `attempts` times. The result of the last attempt
    counts.
    """

    defaultParallelism = 2

    def __init__(self, attempts: int = 1) -> None:
        self._attempts = attempts

    @property
    def sparkContext(self) -> InProcess:
        return self

    def parallelize(self, items: Iterable[Any], slices: int) -> _Work:
        return _Work(list(items), self._attempts)

    def __call__(self) -> SparkSession:
        return self  # type: ignore[return-value]


class _Work:
    def __init__(self, items: list[Any], attempts: int) -> None:
        self._items = items
        self._attempts = attempts

    def map(self, task: Callable[[Any], Any]) -> _Work:
        return _Work([[task(item) for _ in range(self._attempts)][-1] for item in self._items], 1)

    def flatMap(self, task: Callable[[Any], list[Any]]) -> _Work:
        return _Work([each for found in self.map(task)._items for each in found], 1)

    def collect(self) -> list[Any]:
        return self._items
