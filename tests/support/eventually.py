"""Bounded waits for a condition: the only loops of that kind in the tests.

Both forms return the first true value of the condition, so that a condition may also fetch what the test goes on with.
A condition that stays false fails the test with its description, the time, and the last value or error.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.errors import BrokerError

T = TypeVar("T")
Errors = type[Exception] | tuple[type[Exception], ...]
NOT_YET: Errors = BrokerError
"""A broker in the test's own process raises this error for a topic or leader that it does not know yet."""

WITHIN_S = 60.0
"""The default bound. It is generous because other work may share the machine; a wait that succeeds is not longer."""
POLL_S = 0.02


def eventually(
    condition: Callable[[], T],
    what: str = "the condition holds",
    *,
    within_s: float = WITHIN_S,
    poll_s: float = POLL_S,
    ignoring: Errors = NOT_YET,
    details: Callable[[], object] | None = None,
) -> T:
    """Wait until the condition is true and return its value.

    Exceptions in `ignoring` count as false values. `details` is called on failure, and its value joins the message.
    """
    deadline = time.monotonic() + within_s
    while True:
        last: object
        try:
            if found := condition():
                return found
            last = found
        except ignoring as error:
            last = error
        if time.monotonic() >= deadline:
            raise AssertionError(_message(what, within_s, last, details))
        time.sleep(poll_s)


async def eventually_async(
    condition: Callable[[], object],
    what: str = "the condition holds",
    *,
    within_s: float = WITHIN_S,
    poll_s: float = 0.001,
    ignoring: Errors = NOT_YET,
    details: Callable[[], object] | None = None,
) -> Any:
    """Wait, in the time of the running event loop, until the condition or the awaitable it returns is true."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while True:
        last: object
        try:
            found = condition()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return found
            last = found
        except ignoring as error:
            last = error
        if loop.time() >= deadline:
            raise AssertionError(_message(what, within_s, last, details))
        await asyncio.sleep(poll_s)


def _message(what: str, within_s: float, last: object, details: Callable[[], object] | None) -> str:
    text = f"not within {within_s:g} s: {what} (last: {last!r})"
    return text if details is None else f"{text}\n{details()}"
