"""Python's cyclic garbage collector, kept out of the clients' way.

A collection walks through everything made since the one before that is still there: all of the broker in a full one,
and with thousands of long polls under way tens of thousands of objects in a smaller one, while everybody waits. So the
youngest objects are looked at many times a second, a few at a time, and older ones now and then only; nearly all of
them are freed without the collector.
"""

from __future__ import annotations

import asyncio
import gc

YOUNG_COLLECTION_SECONDS = 0.01
FULL_COLLECTION_SECONDS = 300.0
_NEVER = 1_000_000_000
_YOUNGEST, _ALL = 0, 2


def tame_collector() -> None:
    """What is there now is not looked at again; collections come on timers of the running loop."""
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
