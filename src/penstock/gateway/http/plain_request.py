"""A plain request in progress without a task. It is the `Reply` that the handler gives the response to.

The request ends exactly once: with a response, or because its client has disconnected. Loop thread only.
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
    """Methods of the application that a request in progress calls."""

    def refusal(self, error: Exception, exchange: PlainHttpExchange, state: ResponseState) -> Response:
        """Return the problem document for a failed request."""
        ...

    def stopping_response(self, exchange: PlainHttpExchange, state: ResponseState) -> Response | None:
        """Return the 503 response for a cancelled request if the gateway is stopping, else None."""
        ...

    def end(self, request: PlainRequest) -> None:
        """Record the metrics of a request that has ended, and release what it holds of the client's limits."""
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
        """Set the work that is cancelled together with the request."""
        self._begun = begun

    def follow(self, work: Awaitable[Response]) -> None:
        """Run a handler in a task, and send its response."""
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
        """End the request: with 503 if the gateway is stopping, else without a response (the client has left)."""
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
