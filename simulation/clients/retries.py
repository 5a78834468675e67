"""Retries of requests in peace: a request that has to succeed in the end, and does not, is a violation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.errors import BrokerError
from simulation.clients.client import NoAnswer
from simulation.models.history import InvariantViolated

_ATTEMPTS = 30

T = TypeVar("T")


async def retried(act: Callable[[], Awaitable[T]], complaint: str, attempts: int = _ATTEMPTS) -> T:
    """Act until it succeeds, for a while: a client may get a former leader from Metadata at first."""
    for _ in range(attempts):
        try:
            return await act()
        except (BrokerError, NoAnswer) as error:
            last = error
            await asyncio.sleep(0.2)
    raise InvariantViolated("I13", f"{complaint}: {last!r}") from last
