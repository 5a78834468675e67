"""Watches of one client of a coordination store, by path.

Callbacks run on the loop after the change is committed, never inside the call that made it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable


class Watches:
    def __init__(self) -> None:
        self._callbacks: dict[str, dict[int, Callable[[], None]]] = {}
        self._next_key = 0

    def add(self, path: str, callback: Callable[[], None]) -> Callable[[], None]:
        self._next_key += 1
        key = self._next_key
        self._callbacks.setdefault(path, {})[key] = callback

        def stop() -> None:
            watchers = self._callbacks.get(path, {})
            watchers.pop(key, None)
            if not watchers:
                self._callbacks.pop(path, None)

        return stop

    def notify(self, paths: Iterable[str]) -> None:
        loop = asyncio.get_running_loop()
        for path in sorted(paths):
            for key in self._callbacks.get(path, ()):
                loop.call_soon(self._call, path, key)

    def _call(self, path: str, key: int) -> None:
        callback = self._callbacks.get(path, {}).get(key)
        if callback is not None:
            callback()
