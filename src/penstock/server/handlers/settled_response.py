"""Response to a request whose records a coordinator has appended: sent when its shard settles it.

One object instead of a future, a task and their callbacks (see `state_log.shard.Waiter`). Loop thread only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.net.response import Parts, PendingResponse


class SettledResponse(ABC):
    __slots__ = ("_later",)

    def __init__(self) -> None:
        self._later = PendingResponse(barrier=True)

    @abstractmethod
    def encode(self, outcome: ErrorCode) -> bytes:
        """Encode the response as a whole frame."""

    @property
    def answer(self) -> Parts | PendingResponse:
        """The response if it is settled, else the promise of it."""
        return self._later if self._later.parts is None else self._later.parts

    def done(self) -> bool:
        return self._later.parts is not None

    def set_result(self, _: Any, /) -> None:
        self._later.resolve([self.encode(ErrorCode.none)])

    def set_exception(self, error: BrokerError, /) -> None:
        self._later.resolve([self.encode(error.code)])
