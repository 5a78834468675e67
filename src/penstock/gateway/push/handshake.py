"""The handshake of a WebSocket: it is accepted after its parameters and permissions are checked like a request's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send

from penstock.gateway.authorization import Check, checks_of, require, require_all
from penstock.gateway.endpoint_context import EndpointContext
from penstock.gateway.http.endpoint import Endpoint
from penstock.gateway.http.problems import problem_of
from penstock.gateway.http.request_parts import collect_headers, read_parameters
from penstock.gateway.push.socket_messages import refuse

WATCH = "penstock.watch"
"""Key in the ASGI scope: a function that watches permissions; the connection ends when the client loses one."""


class SocketSession(Protocol):
    async def serve(self, receive: Receive, send: Send) -> None:
        """Serve an accepted connection until it ends."""
        ...


@dataclass(frozen=True, slots=True)
class Handshake:
    """Request of a client to open a WebSocket."""

    context: EndpointContext
    parameters: Mapping[str, Any]
    request_id: str
    client: str
    """IP address of the client."""
    watch: Callable[[Sequence[Check]], None]

    async def require(self, operation: str, kind: str, name: str) -> None:
        """Raise BrokerError unless the client has this permission. If it loses it later, the connection ends."""
        await self.context.learn(self.client, ((operation, kind, name),))
        require(self.context.authorize, self.client, operation, kind, name, self.context.shows)
        self.watch(((operation, kind, name),))


class SocketEndpoint:
    """ASGI application that serves an endpoint's WebSockets. `open_session` may refuse one by raising an error."""

    def __init__(
        self,
        endpoint: Endpoint,
        context: EndpointContext,
        next_id: Callable[[], str],
        open_session: Callable[[Handshake], Awaitable[SocketSession]],
    ) -> None:
        self._endpoint = endpoint
        self._context = context
        self._next_id = next_id
        self._open_session = open_session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = self._next_id()
        await receive()
        try:
            session = await self._open(scope, request_id)
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                raise
            await refuse(problem, request_id, send)
            return
        await send({"type": "websocket.accept"})
        await session.serve(receive, send)

    async def _open(self, scope: Scope, request_id: str) -> SocketSession:
        context, endpoint = self._context, self._endpoint
        headers = collect_headers(scope["headers"])
        parameters = read_parameters(endpoint, scope["path_params"], scope["query_string"], headers)
        host = scope["client"][0] if scope["client"] else ""
        checks = tuple(checks_of(endpoint.needs, parameters, None))
        await context.learn(host, checks)
        require_all(context.authorize, host, endpoint.needs, parameters, None, context.shows)
        watch = scope.get(WATCH, lambda checks: None)
        watch(checks)
        return await self._open_session(Handshake(context, parameters, request_id, host, watch))
