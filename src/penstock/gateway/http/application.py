"""The application of the gateway: every HTTP request and every response passes through it.

A request gets an id, is counted against the limits of its client and validated against the declaration of its
endpoint; then the handler gets a `Call`. Failures become problem documents. An unexpected exception is logged
with the request id, and the client sees only that id. The task of a request is cancelled when the client
disconnects, its login ends or the gateway stops. Plain requests come directly from the parser, all others
through ASGI (`exchange.py`). A plain request that waits only for the cluster has no task (`plain_request.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute, Router
from starlette.types import Receive, Scope, Send

from penstock.config import GATEWAY_BODY_MAX_BYTES, GATEWAY_JSON_MAX_BYTES
from penstock.gateway.authorization import checks_of, require_all
from penstock.gateway.endpoint_context import EndpointContext
from penstock.gateway.http.client_limits import ClientLimits, LimitExceeded
from penstock.gateway.http.cross_origin import CrossOrigin
from penstock.gateway.http.endpoint import JSON, SYSTEM, Call, Endpoint
from penstock.gateway.http.exchange import TRANSPORT, AsgiExchange, ClientGone, HttpExchange, certificate_of
from penstock.gateway.http.head_plans import HeadPlans
from penstock.gateway.http.login_watch import LoginWatch
from penstock.gateway.http.plain_exchange import PlainHttpExchange
from penstock.gateway.http.plain_request import PlainRequest
from penstock.gateway.http.problems import CONTENT_TYPE, Problem, problem_of
from penstock.gateway.http.request_parts import (
    Headers,
    collect_headers,
    content_type_of,
    has_body,
    read_body,
    read_json,
    read_parameters,
)
from penstock.gateway.http.response_state import ResponseState
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.routing import RouteTable
from penstock.gateway.http.user_quota import charged, check_quota, timed
from penstock.gateway.http.users import needs_login, refusal, take_ticket
from penstock.gateway.push.handshake import WATCH
from penstock.gateway.push.socket_messages import refuse as refuse_socket
from penstock.net.acting import Actor, acting_for
from penstock.observability.metrics import BrokerMetrics, Histogram
from penstock.security.http_session import HttpLogin

_SAFE = ("GET", "HEAD")
_CLIENT_GONE = 499
"""Status in the metrics for a request whose client disconnected before the response (as in nginx)."""
_POOL_FROM_BYTES = 32 * 1024
"""Size in bytes from which a JSON body is parsed in a thread pool, because parsing it on the event loop would
delay other requests.
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
        self._plans = HeadPlans(endpoints, self._table, self._cross_origin)
        self._max_json_bytes = context.config[GATEWAY_JSON_MAX_BYTES]
        self._max_body_bytes = context.config[GATEWAY_BODY_MAX_BYTES]
        self._metrics = metrics
        self._numbers = count(1)
        self._id_prefix = id_prefix
        self._is_stopping = False
        self._serving: set[asyncio.Task[None] | PlainRequest] = set()
        self._settled: asyncio.Future[None] | None = None
        self._lasting: set[asyncio.Task[None] | PlainRequest] = set()
        """Requests in progress that may take long: long polls, streams and WebSockets."""
        self.limits = ClientLimits(context.config, context.clock)
        users = context.users
        self._watch = (
            None
            if users is None
            else LoginWatch(users, context.shows or context.authorize, context.learn_shown)
        )

    def stop(self) -> None:
        """End long polls and streams, and refuse new requests with 503, so that clients send them to another
        gateway.
        """
        self._is_stopping = True
        if self._watch is not None:
            self._watch.close()
        for request in tuple(self._lasting):
            request.cancel()

    async def settle(self, seconds: float) -> None:
        """Wait until no request is in progress, but at most this many seconds."""
        if self._serving:
            self._settled = asyncio.get_running_loop().create_future()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._settled, seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._serve_socket(scope, receive, send)
        elif scope["type"] == "http":
            await self.serve(AsgiExchange(scope, receive, send))

    def is_plain(self, method: str, path: bytes) -> bool:
        """True if the endpoint for this method and path is declared plain."""
        return self._table.is_plain(method, path)

    async def serve(self, exchange: HttpExchange) -> None:
        """Handle one request and send its response."""
        clock = self._context.clock
        started = clock.monotonic()
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        state = ResponseState(f"{self._id_prefix}-{next(self._numbers):x}")
        try:
            await timed(self._context.quota, self._respond(exchange, state, task), clock.monotonic)
        except ClientGone:
            return
        except asyncio.CancelledError:
            has_ended = self._has_ended(task)
            if state.status or not (self._is_stopping or has_ended):
                return
            await self._refuse(refusal("the login has ended") if has_ended else _stopping(), exchange, state)
        except Exception as error:  # noqa: BLE001 - an unexpected error becomes a 500 for its client alone
            problem = self._explain(error, state.request_id)
            if not state.status:
                await self._refuse(problem, exchange, state)
        finally:
            self._remove(task)
            self._observe(state.endpoint, state.status, clock.monotonic() - started)

    def begin(
        self, exchange: PlainHttpExchange, on_end: Callable[[PlainHttpExchange], None]
    ) -> PlainRequest | None:
        """Begin to serve a plain request whose body is complete, without a task; `on_end` is called at its end.

        Returns None, and has done nothing, if `serve` has to serve or to refuse the request.
        """
        body, client = exchange.body, exchange.address
        if (
            self._is_stopping
            or self._context.users is not None
            or len(body) > self._max_json_bytes
            or len(body) >= _POOL_FROM_BYTES
            or not self.limits.admits(client, len(body))
        ):
            return None
        try:
            found = self._plans.find(exchange)
            if found is None or found[0].content_type not in ("", JSON):
                return None
            value = read_json(found[0].endpoint, body) if found[0].content_type else None
        except Exception:  # noqa: BLE001 - `serve` meets the same error and reports it
            return None
        plan, parameters = found
        endpoint = plan.endpoint
        state = ResponseState(f"{self._id_prefix}-{next(self._numbers):x}")
        state.headers += plan.response_headers
        state.endpoint, state.body_bytes = endpoint.name, len(body)
        request = PlainRequest(self, exchange, state, self._context.clock.monotonic(), on_end)
        self._serving.add(request)
        self.limits.enter(client)
        if body:
            self.limits.hold(client, len(body))
        call = Call(self._context, state.request_id, client, parameters, value, plan.content_type)
        self._handle(endpoint, call, request)
        return request

    def _handle(self, endpoint: Endpoint, call: Call, request: PlainRequest) -> None:
        assert endpoint.begin is not None
        try:
            context = self._context
            require_all(
                context.authorize, call.client, endpoint.needs, call.parameters, call.body, context.shows
            )
            if endpoint.is_stream:
                self._lasting.add(request)
                request.exchange.on_lasting()
            begun = endpoint.begin(call, request)
            if begun is None:
                request.follow(endpoint.handler(call))
            else:
                request.attach(begun)
        except Exception as error:  # noqa: BLE001 - an unexpected error becomes a 500 for its client alone
            request.set_exception(error)

    def end(self, request: PlainRequest) -> None:
        """Record the metrics of a request that has ended, and release what it holds of the client's limits."""
        state, client = request.state, request.exchange.address
        self.limits.give_back(client, state.body_bytes)
        self.limits.leave(client)
        self._remove(request)
        self._observe(state.endpoint, state.status, self._context.clock.monotonic() - request.started)

    def refusal(self, error: Exception, exchange: HttpExchange, state: ResponseState) -> Response:
        """Return the problem document for a failed request."""
        return self._problem_response(self._explain(error, state.request_id), exchange, state)

    def stopping_response(self, exchange: HttpExchange, state: ResponseState) -> Response | None:
        """Return the 503 response for a cancelled request if the gateway is stopping, else None."""
        return self._problem_response(_stopping(), exchange, state) if self._is_stopping else None

    def _remove(self, request: asyncio.Task[None] | PlainRequest) -> None:
        self._serving.discard(request)
        self._lasting.discard(request)
        if not self._serving and self._settled is not None and not self._settled.done():
            self._settled.set_result(None)

    async def _respond(self, exchange: HttpExchange, state: ResponseState, task: asyncio.Task[None]) -> None:
        headers, method = collect_headers(exchange.headers), exchange.method
        self._cross_origin.apply(headers, state.headers)
        state.is_body_unread = has_body(headers)
        if method == "OPTIONS":
            allowed = self._table.methods(exchange.raw_path)
            await exchange.respond(self._cross_origin.preflight(headers, allowed), state.begin)
            return
        if method not in _SAFE:
            self._cross_origin.check(headers)
        endpoint, in_path = self._table.find(method, exchange.raw_path)
        state.endpoint = endpoint.name
        client = exchange.address
        login = await self._log_in(endpoint, exchange, headers)
        parameters = read_parameters(endpoint, in_path, exchange.query_string, headers)
        if endpoint.tag == SYSTEM:
            # Health checks and metrics are not subject to the limits.
            call = Call(self._context, state.request_id, client, parameters)
            await exchange.respond(await endpoint.handler(call), state.begin)
            return
        if self._is_stopping:
            raise _stopping()
        await self._enter(client)
        try:
            body, content_type = await self._read_body(endpoint, exchange, headers, state)
            context = self._context
            await context.learn(client, checks_of(endpoint.needs, parameters, body))
            require_all(context.authorize, client, endpoint.needs, parameters, body, context.shows)
            await check_quota(context.quota, state.body_bytes)
            call = Call(context, state.request_id, client, parameters, body, content_type, login)
            if endpoint.is_stream:
                self._lasting.add(task)
                exchange.on_lasting()
                if self._watch is not None and login is not None:
                    self._watch.add(task, login, client, tuple(checks_of(endpoint.needs, parameters, body)))
            response = charged(context.quota, state.body_bytes, await endpoint.handler(call))
            await exchange.respond(response, state.begin)
        finally:
            self.limits.give_back(client, state.body_bytes)
            self.limits.leave(client)

    async def _log_in(self, endpoint: Endpoint, exchange: HttpExchange, headers: Headers) -> HttpLogin | None:
        """Return the login of a request, None if it needs none. Raises Problem if the credentials are refused."""
        users, client = self._context.users, exchange.address
        if (
            users is None
            or not endpoint.needs_user
            or (endpoint.tag == SYSTEM and not needs_login(exchange.raw_path, client))
        ):
            return None
        ticket = ""
        if endpoint.is_stream:
            ticket, exchange.query_string = take_ticket(exchange.query_string)
        login = await users.log_in(client, exchange.method, headers, ticket, exchange.certificate())
        acting_for.set(Actor(login.user, client))
        return login

    async def _enter(self, client: str) -> None:
        try:
            self.limits.enter(client)
        except LimitExceeded as refusal:
            await asyncio.sleep(refusal.held_seconds)
            raise

    async def _read_body(
        self, endpoint: Endpoint, exchange: HttpExchange, headers: Headers, state: ResponseState
    ) -> tuple[Any, str]:
        if not state.is_body_unread:
            if endpoint.bodies and endpoint.is_body_required:
                wanted = " or ".join(endpoint.bodies)
                raise Problem(400, f"the request has no body; send one: {wanted}", error="INVALID_REQUEST")
            return None, ""
        is_foreign = self._cross_origin.is_foreign(headers)
        content_type = content_type_of(endpoint, headers, is_foreign=is_foreign)
        limit = self._max_body_bytes
        if content_type == JSON:
            limit = max(self._max_json_bytes, endpoint.json_max_bytes)

        def hold(size: int) -> None:
            self.limits.hold(exchange.address, size)
            state.body_bytes += size

        body = await read_body(exchange, headers, limit, hold)
        state.is_body_unread = False
        if content_type != JSON:
            return body, content_type
        if len(body) < _POOL_FROM_BYTES:
            return read_json(endpoint, body), content_type
        return await self._context.threads.run("read", partial(read_json, endpoint, body)), content_type

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope["client"][0] if scope["client"] else ""
        request_id = f"{self._id_prefix}-{next(self._numbers):x}"
        try:
            headers = collect_headers(scope["headers"])
            self._cross_origin.check(headers)
            login = await self._log_in_socket(scope, headers, client)
            if self._is_stopping:
                raise _stopping()
            await self._enter(client)
        except Problem as problem:
            await refuse_socket(problem, request_id, send)
            return
        task = asyncio.current_task()
        assert task is not None
        self._lasting.add(task)
        if self._watch is not None and login is not None:
            self._watch.add(task, login, client, ())
            scope[WATCH] = partial(self._watch.require, task)
        try:
            await self._sockets(scope, receive, send)
        except asyncio.CancelledError:
            if self._has_ended(task):
                await send({"type": "websocket.close", "code": 1008, "reason": "the login has ended"})
            else:
                await send({"type": "websocket.close", "code": 1001, "reason": "the gateway is stopping"})
        except Exception as error:  # noqa: BLE001 - an unexpected error closes its WebSocket alone
            self._explain(error, request_id)
            await send({"type": "websocket.close", "code": 1011, "reason": "internal error"})
        finally:
            self._lasting.discard(task)
            self.limits.leave(client)

    async def _log_in_socket(self, scope: Scope, headers: Headers, client: str) -> HttpLogin | None:
        users = self._context.users
        if users is None:
            return None
        ticket, scope["query_string"] = take_ticket(scope["query_string"])
        login = await users.log_in(client, "GET", headers, ticket, certificate_of(scope.get(TRANSPORT)))
        acting_for.set(Actor(login.user, client))
        return login

    def _has_ended(self, task: asyncio.Task[None]) -> bool:
        """True if the task was cancelled because the login or a permission of its client has ended."""
        return self._watch is not None and self._watch.has_ended(task)

    async def _refuse(self, problem: Problem, exchange: HttpExchange, state: ResponseState) -> None:
        await exchange.respond(self._problem_response(problem, exchange, state), state.begin)

    def _problem_response(self, problem: Problem, exchange: HttpExchange, state: ResponseState) -> Response:
        response: Response = json_response(problem.document(state.request_id), problem.status, CONTENT_TYPE)
        for name, value in problem.headers.items():
            response.headers[name] = value
        if exchange.method == "HEAD":
            response = Response(status_code=problem.status, headers=dict(response.headers))
        return response

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
