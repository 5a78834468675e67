"""Response to a request whose records a coordinator has appended, sent when the coordinator shard reports the outcome.

It is one object, which costs less than a future, a task and their callbacks (see `state_log.shard.Waiter`). Loop thread
only.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.net.response import Parts, PendingResponse


class SettledResponse(PendingResponse):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(barrier=True)

    @abstractmethod
    def encode(self, outcome: ErrorCode) -> bytes:
        """Encode the complete response frame for an outcome."""

    @property
    def answer(self) -> Parts | PendingResponse:
        """The encoded response if the outcome is known, else this pending response."""
        return self if self.parts is None else self.parts

    def done(self) -> bool:
        return self.parts is not None

    def set_result(self, _: Any, /) -> None:
        self.resolve([self.encode(ErrorCode.none)])

    def set_exception(self, error: BrokerError, /) -> None:
        self.resolve([self.encode(error.code)])
