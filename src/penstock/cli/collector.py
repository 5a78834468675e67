"""Python's cyclic garbage collector, kept out of the clients' way.

A full collection walks through everything the broker holds, a tenth of a second and more with thousands of connections
or partitions, while all of them wait. Nearly everything is freed without it, so full ones are made now and then only.
"""

from __future__ import annotations

import asyncio
import gc

FULL_COLLECTION_SECONDS = 300.0
_NEVER = 1_000_000_000


def tame_collector() -> None:
    """What is there now is not looked at again; full collections come on a timer of the running loop."""
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)
    _collect_later(asyncio.get_running_loop())


def _collect_later(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_later(FULL_COLLECTION_SECONDS, _collect, loop)


def _collect(loop: asyncio.AbstractEventLoop) -> None:
    gc.collect()
    _collect_later(loop)
