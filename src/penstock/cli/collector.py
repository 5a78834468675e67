"""Tuning of Python's cyclic garbage collector for low latency.

A collection traverses all objects of a generation and blocks the event loop: a full collection traverses the
whole broker, and thousands of long polls fill the younger generations with tens of thousands of objects. So
the youngest generation is collected many times a second, in small portions, and the others every few minutes.
Reference counts free nearly all objects without the collector.
"""

from __future__ import annotations

import asyncio
import gc

YOUNG_COLLECTION_SECONDS = 0.01
FULL_COLLECTION_SECONDS = 300.0
_NEVER = 1_000_000_000
_YOUNGEST, _ALL = 0, 2


def tame_collector() -> None:
    """Exclude all present objects from collection, and run collections on timers of the event loop."""
    gc.freeze()
    gc.set_threshold(gc.get_threshold()[_YOUNGEST], _NEVER, _NEVER)
    loop = asyncio.get_running_loop()
    _collect_later(loop, _YOUNGEST, YOUNG_COLLECTION_SECONDS)
    _collect_later(loop, _ALL, FULL_COLLECTION_SECONDS)


def _collect_later(loop: asyncio.AbstractEventLoop, generation: int, seconds: float) -> None:
    loop.call_later(seconds, _collect, loop, generation, seconds)


def _collect(loop: asyncio.AbstractEventLoop, generation: int, seconds: float) -> None:
    gc.collect(generation)
    _collect_later(loop, generation, seconds)
