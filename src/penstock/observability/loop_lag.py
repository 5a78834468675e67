"""Lag of the event loop: a periodic timer that measures the delay with which it is called."""

from __future__ import annotations

import asyncio

from penstock.observability.metrics import Histogram

INTERVAL_SECONDS = 0.25


class LoopLag:
    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(
            loop.time() + INTERVAL_SECONDS, self._tick, loop, loop.time() + INTERVAL_SECONDS
        )

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._histogram.observe(max(0.0, loop.time() - due))
        self.start()
