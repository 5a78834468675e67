"""Long work on the event loop, divided into slices: other callbacks of the loop run between two slices."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

SLICE_SECONDS = 0.001
"""A write on the same loop waits for a whole slice: with 4 ms, ten tabs of the console doubled a producer's p99."""


async def in_slices(steps: Generator[None, None, T]) -> T:
    """Run a generator to its end and return its value. A slice ends at the first step after SLICE_SECONDS."""
    loop = asyncio.get_running_loop()
    slice_end = 0.0
    while True:
        if loop.time() >= slice_end:
            await asyncio.sleep(0)
            slice_end = loop.time() + SLICE_SECONDS
        try:
            next(steps)
        except StopIteration as done:
            value: T = done.value
            return value


async def collect(items: Iterable[T]) -> list[T]:
    """Return the items of a lazy iterable as a list, working in slices."""
    return await in_slices(_collecting(iter(items)))


def _collecting(items: Iterator[T]) -> Generator[None, None, list[T]]:
    collected: list[T] = []
    for item in items:
        collected.append(item)
        yield
    return collected
