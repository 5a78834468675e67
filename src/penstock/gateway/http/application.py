"""The ASGI application of the gateway: every HTTP request and every response passes through here.

A request gets an id, is counted against the limits of its client and validated against the declaration of its
endpoint; then the handler gets a `Call`. Failures become problem documents; an unexpected exception is logged
with the request id, and the client sees that id alone. A cancelled task means that the client has left or
that the gateway stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Router
from starlette.types import Message, Receive, Scope, Send

from penstock.config import GATEWAY_BODY_MAX_BYTES, GATEWAY_JSON_MAX_BYTES
from penstock.gateway.authorization import require_all
from penstock.gateway.endpoint_context import EndpointContext
from penstock.gateway.http.client_limits import ClientLimits, LimitExceeded
from penstock.gateway.http.connection import ON_LASTING, SEND_WHOLE, SendWhole
from penstock.gateway.http.cross_origin import CrossOrigin
from penstock.gateway.http.endpoint import JSON, SYSTEM, Call, Endpoint
from penstock.gateway.http.problems import CONTENT_TYPE, Problem, problem_of
from penstock.gateway.http.request_parts import (
    ClientGone,
    Headers,
    collect_headers,
    content_type_of,
    has_body,
    read_body,
    read_json,
    read_parameters,
)
from penstock.gateway.http.responses import JsonResponse, json_response
from penstock.gateway.http.routing import RouteTable
from penstock.gateway.push.websocket import refuse as refuse_socket
from penstock.observability.metrics import BrokerMetrics, Histogram

_SAFETY = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)

_SAFE = ("GET", "HEAD")
_CLIENT_GONE = 499
"""Status that metrics show for a client that left before the response, as proxies count it."""
_POOL_FROM_BYTES = 32 * 1024
"""A JSON body above this size is parsed in a thread pool, because parsing on the loop would delay other
requests.
"""


class GatewayApplication:
    """The gateway as an ASGI application."""

    def __init__(
        self,
        context: EndpointContext,
        endpoints: Sequence[Endpoint],
        sockets: Sequence[BaseRoute],
        metrics: BrokerMetrics,
        id_prefix: str,
    ) -> None:
        self._context = context
        self._table = RouteTable(endpoints)
        self._sockets = Router(routes=sockets)
        self._cross_origin = CrossOrigin(context.config)
        self._max_json_bytes = context.config[GATEWAY_JSON_MAX_BYTES]
        self._max_body_bytes = context.config[GATEWAY_BODY_MAX_BYTES]
        self._metrics = metrics
        self._numbers = count(1)
        self._id_prefix = id_prefix
        self._is_stopping = False
        self._serving: set[asyncio.Task[None]] = set()
        self._lasting: set[asyncio.Task[None]] = set()
        """The requests in progress that wait for messages or stream them."""
        self.limits = ClientLimits(context.config, context.clock)

    def stop(self) -> None:
        """End long polls and streams and refuse new requests with 503, so that clients repeat them at another
        gateway.
        """
        self._is_stopping = True
        for task in self._lasting:
            task.cancel()

    async def settle(self, seconds: float) -> None:
        """Wait until all requests have a response, but no longer than this."""
        if self._serving:
            await asyncio.wait(self._serving, timeout=seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._serve_socket(scope, receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = self._context.clock.monotonic()
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        state = _ResponseState(send, f"{self._id_prefix}-{next(self._numbers):x}")
        client = scope["client"][0] if scope["client"] else ""
        try:
            await self._respond(scope, receive, state, client, task)
        except ClientGone:
            return
        except asyncio.CancelledError:
            if not self._is_stopping or state.status:
                return
            await self._refuse(_stopping(), scope, receive, state)
        except Exception as error:  # noqa: BLE001 - an unexpected error becomes a 500 for its client alone
            problem = self._explain(error, state.request_id)
            if not state.status:
                await self._refuse(problem, scope, receive, state)
        finally:
            self._serving.discard(task)
            self._lasting.discard(task)
            self._observe(state.endpoint, state.status, self._context.clock.monotonic() - started)

    async def _respond(
        self, scope: Scope, receive: Receive, state: _ResponseState, client: str, task: asyncio.Task[None]
    ) -> None:
        headers, method = collect_headers(scope["headers"]), scope["method"]
        self._cross_origin.apply(headers, state.headers)
        state.is_body_unread = has_body(headers)
        if method == "OPTIONS":
            allowed = self._table.methods(scope["raw_path"])
            response = self._cross_origin.preflight(headers, allowed)
            await response(scope, receive, state.send)
            return
        if method not in _SAFE:
            self._cross_origin.check(headers)
        endpoint, in_path = self._table.find(method, scope["raw_path"])
        state.endpoint = endpoint.name
        parameters = read_parameters(endpoint, in_path, scope["query_string"], headers)
        if endpoint.tag == SYSTEM:
            # Health checks and metrics are served whatever the limits say.
            request = Request(scope, receive)
            call = Call(self._context, request, state.request_id, client, parameters)
            await self._call(endpoint, call, state)
            return
        if self._is_stopping:
            raise _stopping()
        await self._enter(client)
        try:
            body, content_type = await self._read_body(endpoint, receive, headers, state, client)
            require_all(self._context.authorize, client, endpoint.needs, parameters, body)
            request = Request(scope, receive)
            call = Call(self._context, request, state.request_id, client, parameters, body, content_type)
            if endpoint.is_stream:
                self._lasting.add(task)
                if ON_LASTING in scope:
                    scope[ON_LASTING]()
            await self._call(endpoint, call, state)
        finally:
            self.limits.give_back(client, state.body_bytes)
            self.limits.leave(client)

    async def _enter(self, client: str) -> None:
        try:
            self.limits.enter(client)
        except LimitExceeded as refusal:
            await asyncio.sleep(refusal.held_seconds)
            raise

    async def _read_body(
        self, endpoint: Endpoint, receive: Receive, headers: Headers, state: _ResponseState, client: str
    ) -> tuple[Any, str]:
        if not state.is_body_unread:
            if endpoint.bodies and endpoint.is_body_required:
                wanted = " or ".join(endpoint.bodies)
                raise Problem(400, f"the request has no body; send one: {wanted}", error="INVALID_REQUEST")
            return None, ""
        is_foreign = self._cross_origin.is_foreign(headers)
        content_type = content_type_of(endpoint, headers, is_foreign=is_foreign)
        limit = self._max_json_bytes if content_type == JSON else self._max_body_bytes

        def hold(size: int) -> None:
            self.limits.hold(client, size)
            state.body_bytes += size

        body = await read_body(receive, headers, limit, hold)
        state.is_body_unread = False
        if content_type != JSON:
            return body, content_type
        if len(body) < _POOL_FROM_BYTES:
            return read_json(endpoint, body), content_type
        return await self._context.threads.run("read", partial(read_json, endpoint, body)), content_type

    async def _call(self, endpoint: Endpoint, call: Call, state: _ResponseState) -> None:
        response = await endpoint.handler(call)
        request = call.request
        if type(response) is JsonResponse and SEND_WHOLE in request.scope and request.method != "HEAD":
            await state.send_whole(response, request.scope[SEND_WHOLE])
        else:
            await response(request.scope, request.receive, state.send)

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope["client"][0] if scope["client"] else ""
        request_id = f"{self._id_prefix}-{next(self._numbers):x}"
        try:
            self._cross_origin.check(collect_headers(scope["headers"]))
            if self._is_stopping:
                raise _stopping()
            await self._enter(client)
        except Problem as problem:
            await refuse_socket(problem, request_id, send)
            return
        task = asyncio.current_task()
        assert task is not None
        self._lasting.add(task)
        try:
            await self._sockets(scope, receive, send)
        except asyncio.CancelledError:
            await send({"type": "websocket.close", "code": 1001, "reason": "the gateway is stopping"})
        except Exception as error:  # noqa: BLE001 - an unexpected error closes its WebSocket alone
            self._explain(error, request_id)
            await send({"type": "websocket.close", "code": 1011, "reason": "internal error"})
        finally:
            self._lasting.discard(task)
            self.limits.leave(client)

    async def _refuse(self, problem: Problem, scope: Scope, receive: Receive, state: _ResponseState) -> None:
        response: Response = json_response(problem.document(state.request_id), problem.status, CONTENT_TYPE)
        for name, value in problem.headers.items():
            response.headers[name] = value
        if scope["method"] == "HEAD":
            response = Response(status_code=problem.status, headers=dict(response.headers))
        await response(scope, receive, state.send)

    def _explain(self, error: Exception, request_id: str) -> Problem:
        problem = problem_of(error)
        if problem is None:
            self._context.log.error("HTTP request failed", error, request_id=request_id)
            problem = Problem(
                500,
                "internal error; the log of the gateway has it under the request id",
                error="UNKNOWN_SERVER_ERROR",
            )
        return problem

    def _observe(self, name: str, status: int, seconds: float) -> None:
        histogram = self._metrics.http_requests.get(name)
        if histogram is None:
            histogram = self._metrics.http_requests[name] = Histogram()
        histogram.observe(seconds)
        self._metrics.http_answers.increment(str(status or _CLIENT_GONE))


def _stopping() -> Problem:
    headers = {"retry-after": "1", "connection": "close"}
    return Problem(503, "the gateway is stopping; send the request again", retriable=True, headers=headers)


class _ResponseState:
    """The response to one request: its headers and whether it has begun."""

    def __init__(self, send: Send, request_id: str) -> None:
        self.request_id = request_id
        self.status = 0
        self.endpoint = "none"
        self.is_body_unread = False
        self.body_bytes = 0
        self.headers: list[tuple[bytes, bytes]] = [*_SAFETY, (b"x-request-id", request_id.encode())]
        self._send = send

    async def send_whole(self, response: JsonResponse, send: SendWhole) -> None:
        """Send head and body with one write, where the server supports that."""
        self.status = response.status_code
        await send(response.status_code, [*response.raw_headers, *self.headers], bytes(response.body))

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given = {name for name, _ in message["headers"]}
            added = [pair for pair in self.headers if pair[0] not in given]
            if self.is_body_unread:
                # The unread rest of the body would be taken for the next request.
                added.append((b"connection", b"close"))
            message["headers"] = [*message["headers"], *added]
        await self._send(message)
