"""Faults at a chosen request to a broker: the process dies before the request is sent or before the response
arrives, or another action runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.net.broker_connection import BrokerConnection


class Killed(BaseException):
    """The simulated process has died."""


class Death:
    def __init__(self, at: int, *, is_sent: bool) -> None:
        self.has_come = False
        self._left = at
        self._is_sent = is_sent

    @contextmanager
    def awaited(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """Raise Killed at the request, and drop all later work of the process."""
        ask = BrokerConnection.submit

        def counted(client: BrokerConnection, correlation_id: int, frame: bytes, asker: Any) -> None:
            self._left -= 1
            if self._left == 0 and self._is_sent:
                ask(client, correlation_id, frame, asker)
            if self._left <= 0:
                self.has_come = True
                raise Killed
            ask(client, correlation_id, frame, asker)

        with patch.context() as within:
            within.setattr(BrokerConnection, "submit", counted)
            try:
                yield
            except Killed:
                assert self.has_come


@contextmanager
def interrupted(at: int, happening: Callable[[], None], patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run an action before the request is sent."""
    ask, left = BrokerConnection.submit, at

    def counted(client: BrokerConnection, correlation_id: int, frame: bytes, asker: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            happening()
        ask(client, correlation_id, frame, asker)

    with patch.context() as within:
        within.setattr(BrokerConnection, "submit", counted)
        yield
