"""Set-up shared by broker and gateway processes: event loop, signals, open files, garbage collection.

Python's cyclic garbage collector blocks the event loop: a full collection traverses all objects of the broker, and
thousands of long polls fill the younger generations with tens of thousands of objects. Therefore the youngest
generation is collected many times a second, in small portions, and the other generations every few minutes. Nearly all
objects are freed by reference counting, without the collector.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
from collections.abc import Callable
from contextlib import suppress

from penstock.cli.failures import ExitCode, Failure
from penstock.config import EVENT_LOOP, Address, BrokerConfig, EventLoop
from penstock.observability.logs import Logger

YOUNG_COLLECTION_SECONDS = 0.01
FULL_COLLECTION_SECONDS = 300.0
_NEVER = 1_000_000_000
_YOUNGEST, _ALL = 0, 2


def loop_factory(config: BrokerConfig) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of the event loop selected by `event.loop`; None for asyncio's own loop."""
    if config[EVENT_LOOP] is EventLoop.ASYNCIO:
        return None
    try:
        import uvloop
    except ImportError:
        if config[EVENT_LOOP] is EventLoop.AUTO:
            return None
        raise Failure(
            "event.loop is uvloop, which is not installed",
            "Install it with `pip install uvloop`, or use --set event.loop=asyncio.",
        ) from None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on the first SIGTERM or SIGINT; a second signal ends the process at once."""
    loop = asyncio.get_running_loop()

    def stop_once() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_once)


def raise_open_files_limit(needed: int, spare: int, log: Logger) -> None:
    """Raise the soft limit of open files to `needed + spare` if possible. Logs a warning if the limit is below
    `needed`.
    """
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed + spare if most == resource.RLIM_INFINITY else min(needed + spare, most)
    if limit < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
            limit = wanted
    if limit < needed:
        log.warning("open file limit is lower than the settings need", limit=limit, needed=needed)


def cannot_listen(address: Address, option: str, error: OSError) -> Failure:
    """Return the Failure for an address that cannot be listened on; `option` sets the port."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return Failure(
        f"cannot listen on {address}: {reason}",
        f"Choose another address with {option} or --host, or stop the process that uses this one.",
        code=ExitCode.USAGE,
    )


def tune_garbage_collector() -> None:
    """Exclude all existing objects from garbage collection, and run collections on timers of the event loop."""
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
