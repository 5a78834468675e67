"""A plain request in progress without a task: the reply that its handler gives the response to.

The request ends once: with a response, or because its client has left. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from starlette.responses import Response

from penstock.gateway.http.endpoint import Begun
from penstock.gateway.http.plain_exchange import PlainHttpExchange
from penstock.gateway.http.response_state import ResponseState


class RequestKeeper(Protocol):
    """The application, as a request in progress sees it."""

    def refusal(self, error: Exception, exchange: PlainHttpExchange, state: ResponseState) -> Response:
        """Return the response for a failure."""
        ...

    def stopping_response(self, exchange: PlainHttpExchange, state: ResponseState) -> Response | None:
        """Return the response for a cancelled request while the gateway stops; None at other times."""
        ...

    def end(self, request: PlainRequest) -> None:
        """Count the request, and release its limits."""
        ...


class PlainRequest:
    __slots__ = ("_begun", "_is_over", "_keeper", "_on_end", "exchange", "started", "state")

    def __init__(
        self,
        keeper: RequestKeeper,
        exchange: PlainHttpExchange,
        state: ResponseState,
        started: float,
        on_end: Callable[[PlainHttpExchange], None],
    ) -> None:
        self.exchange = exchange
        self.state = state
        self.started = started
        self._keeper = keeper
        self._on_end = on_end
        self._begun: Begun | None = None
        self._is_over = False

    def attach(self, begun: Begun) -> None:
        """Note the work that a cancelled request gives up."""
        self._begun = begun

    def follow(self, work: Awaitable[Response]) -> None:
        """Wait for the response of a handler in a task."""
        task = asyncio.ensure_future(work)
        self._begun = task
        task.add_done_callback(self._on_task_done)

    def done(self) -> bool:
        return self._is_over

    def set_result(self, response: Response, /) -> None:
        if self._is_over:
            return
        self._is_over = True
        exchange, state = self.exchange, self.state
        if exchange.flow.write_paused and not exchange.disconnected:
            writing = asyncio.ensure_future(exchange.respond(response, state.begin))
            writing.add_done_callback(self._on_written)
            return
        try:
            exchange.respond_now(response, state.begin)
        except Exception as error:  # noqa: BLE001 - the response cannot be sent; the connection is closed
            self._keeper.refusal(error, exchange, state)
        self._end()

    def set_exception(self, error: BaseException, /) -> None:
        if self._is_over:
            return
        if isinstance(error, Exception):
            self.set_result(self._keeper.refusal(error, self.exchange, self.state))
        else:
            self.cancel()

    def cancel(self) -> None:
        """End the request without a response, because its client has left; with 503 where the gateway stops."""
        if self._is_over:
            return
        if self._begun is not None:
            self._begun.cancel()
        response = self._keeper.stopping_response(self.exchange, self.state)
        if response is None:
            self._is_over = True
            self._end()
        else:
            self.set_result(response)

    def _on_task_done(self, task: asyncio.Future[Response]) -> None:
        if self._is_over:
            if not task.cancelled():
                task.exception()
        elif task.cancelled():
            self.cancel()
        elif (error := task.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(task.result())

    def _on_written(self, writing: asyncio.Future[None]) -> None:
        if not writing.cancelled() and isinstance(error := writing.exception(), Exception):
            self._keeper.refusal(error, self.exchange, self.state)
        self._end()

    def _end(self) -> None:
        self._keeper.end(self)
        self._on_end(self.exchange)
