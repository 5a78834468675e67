"""Garbage collection of a broker process: young cycles are freed soon, and long-lived objects are not
scanned.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from penstock.cli.collector import tame_collector


class Node:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def ordinary_collector() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_a_cycle_is_freed_soon_though_nothing_is_allocated() -> None:
    async def drop_a_cycle() -> None:
        tame_collector()
        dropped = weakref.ref(Node())
        async with asyncio.timeout(10):
            while dropped() is not None:
                await asyncio.sleep(0)

    asyncio.run(drop_a_cycle())


def test_objects_that_stay_are_looked_at_once() -> None:
    collected: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        collected.append(info["generation"])

    async def keep_many() -> None:
        tame_collector()
        gc.callbacks.append(note)
        kept = [[number] for number in range(100_000)]
        gc.callbacks.remove(note)
        assert kept

    asyncio.run(keep_many())
    assert set(collected) == {0}
