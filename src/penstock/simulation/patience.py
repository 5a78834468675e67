"""Asking a cluster in peace until it answers: whoever must be served at the end, and is not, has found something."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.errors import BrokerError
from penstock.simulation.client import NoAnswer
from penstock.simulation.history import InvariantViolated

_ATTEMPTS = 30

T = TypeVar("T")


async def tried(act: Callable[[], Awaitable[T]], complaint: str, attempts: int = _ATTEMPTS) -> T:
    """Whoever looks for a leader may be told of one that was: again, for a while."""
    for _ in range(attempts):
        try:
            return await act()
        except (BrokerError, NoAnswer) as error:
            last = error
            await asyncio.sleep(0.2)
    raise InvariantViolated("I13", f"{complaint}: {last!r}") from last
