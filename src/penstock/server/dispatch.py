"""Dispatch of a frame to the handler of its API, and encoding of the response.

A handler module declares its `API`: key, version range, and a function. The function of an ordinary API
takes `(request, message)`, where the message is the decoded request, and returns the response as nested
mappings (the wire layer drops fields that a version does not have). It may be `async`, and then later
requests of its connection wait for it; or it returns parts to send, or a `PendingResponse`. A raw API
(Produce, Fetch, Heartbeat, OffsetCommit) takes `(request, frame, position)` and returns parts to send, a
`PendingResponse`, or None for no response. ApiVersions is derived from the table.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.errors import ProtocolError
from penstock.model import BrokerId
from penstock.net.acting import MARK, split_actor
from penstock.net.response import Answer, Parts, PendingResponse
from penstock.server.audit import CHANGES, AuditLog
from penstock.server.client_quotas import MeasuredRequest
from penstock.server.context import BrokerContext
from penstock.server.follower_session import FollowerSession
from penstock.server.key_session import KeySession
from penstock.server.known_requests import KnownCommit, KnownHeartbeat
from penstock.server.security import (
    BROKER,
    SUPPORTED_OPERATIONS,
    Caller,
    Login,
    OnBehalf,
    Operation,
    Principal,
    ResourceType,
    require,
)
from penstock.wire.apis import API_VERSIONS, api_name
from penstock.wire.broker_handshake import Challenge
from penstock.wire.headers import RequestHeader, read_request_header
from penstock.wire.messages import decode_request, encode_response_frame

DEFAULT_LISTENER = "PLAINTEXT"
Fields = Mapping[str, Any]
MessageHandler = Callable[["Request", Any], "Fields | Awaitable[Fields] | Parts | PendingResponse"]
RawHandler = Callable[["Request", memoryview, int], Answer]
PlainHandler = Callable[
    ["BrokerContext", "Session", memoryview, int, int, int], Parts | PendingResponse | None
]


@dataclass(frozen=True, slots=True)
class Api:
    """API as this broker serves it."""

    key: int
    min_version: int
    max_version: int
    handle: MessageHandler | None = None
    handle_raw: RawHandler | None = None
    decode: Callable[[memoryview, int, int], Any] | None = None
    """Decoder of the request: takes frame, position and version. None for the decoder that is generated from the
    schema.
    """
    is_concurrent: bool = False
    """True if later requests of the connection are handled while the `async` handler of this one still runs."""
    handle_plain: PlainHandler | None = None
    """Fast path for the most common form of the request, tried first: takes `(context, session, frame, position,
    version, correlation id)`. Returns None if the request has another form; then nothing has changed and `handle` or
    `handle_raw` serves it. Returns an empty list for a request without a response.
    """


@dataclass(slots=True, eq=False)
class Session:
    """State of one client connection."""

    peer: str
    host: str
    principal: Principal
    number: int = 0
    """Number of the connection (`ConnectionNumbers`)."""
    client_id: str | None = None
    """Client id of the last request that was not served by `handle_plain`."""
    software: str = ""
    """Name and version of the client software, as ApiVersions gives them."""
    challenge: Challenge | None = None
    """Challenge that a connecting broker still has to answer to prove the cluster secret; None otherwise."""
    broker_id: BrokerId | None = None
    """Id of the authenticated broker; None for other clients."""
    follower: FollowerSession | None = None
    """Fetch session of the authenticated broker as a follower."""
    keys: KeySession | None = None
    """Lookups by key (FetchByKey) of the connection."""
    heartbeat: KnownHeartbeat | None = None
    """Last Heartbeat of the connection."""
    commit: KnownCommit | None = None
    """Last OffsetCommit of the connection that the client may repeat with only the offset changed."""
    is_consumer: bool = False
    """True if the client has fetched records, listed offsets or looked for the coordinator of a group."""
    is_producer: bool = False
    """True if the client has sent records."""
    listener: str = DEFAULT_LISTENER
    """Name of the listener that accepted the connection."""
    login: Login | None = None
    """Completed SASL login; None without one."""
    is_gateway: bool = False
    """True if the client may send requests on behalf of other users: it has proved the cluster secret, or its user is
    in `gateway.users`.
    """
    mute: Callable[[float], None] | None = None
    """Function that stops reading from the connection for a number of seconds."""
    binding: bytes = b""
    """Fingerprint of the certificate that this broker showed to the client; empty without TLS."""


@dataclass(slots=True)
class Request:
    """Request with its header, its client connection and the dependencies of handlers."""

    header: RequestHeader
    session: Session
    context: BrokerContext
    on_behalf: OnBehalf | None = None
    """Client on whose behalf a gateway sent the request; None if the client sent it for itself."""

    @property
    def caller(self) -> Caller:
        """Client whose rights decide about the request."""
        return self.on_behalf or self.session

    @property
    def version(self) -> int:
        return self.header.api_version

    def allowed(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """True if the client may do `operation` on the resource; a refusal is recorded."""
        caller = self.caller
        return self.context.authorizer.authorize(caller.principal, caller.host, operation, kind, name)

    def shows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """True if a list in the response may include the resource; nothing is recorded."""
        caller = self.caller
        return self.context.authorizer.shows(caller.principal, caller.host, operation, kind, name)

    def has_right(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """True if the client has the right by its access control lists, even in mode `report`; nothing is recorded."""
        caller = self.caller
        return self.context.authorizer.has_right(caller.principal, caller.host, operation, kind, name)

    def require(self, operation: Operation, kind: ResourceType, name: str) -> None:
        require(self.context.authorizer, self.caller, operation, kind, name)

    def authorized_operations(self, kind: ResourceType, name: str) -> int:
        """Bit field of authorized operations in Metadata, DescribeCluster and DescribeGroups."""
        return sum(1 << op for op in SUPPORTED_OPERATIONS[kind] if self.shows(op, kind, name))


class Dispatcher:
    """Table of the APIs, and dispatch of frames to them."""

    def __init__(self, context: BrokerContext, apis: Iterable[Api], *, serves_plain: bool = True) -> None:
        """Create a dispatcher. With `serves_plain=False`, `handle_plain` is never used: tests compare the two ways."""
        self._context = context
        self._apis = {api.key: api if serves_plain else replace(api, handle_plain=None) for api in apis}
        self._durations = context.metrics.requests
        self._monotonic = context.clock.monotonic
        self._tasks: set[asyncio.Task[None]] = set()

    def dispatch(self, session: Session, frame: memoryview) -> Answer:
        """Serve one frame. Raises ProtocolError if the frame is not a request of a known API and version."""
        started = self._monotonic()
        api_key, version, correlation_id, client_id, position = read_request_header(frame)
        api = self._apis.get(api_key)
        if api is None:
            raise ProtocolError(f"unknown api key {api_key}")
        is_served = api.min_version <= version <= api.max_version
        answer: Answer = None
        on_behalf: OnBehalf | None = None
        if client_id is not None and MARK in client_id:
            client_id, on_behalf = _named_client(session, client_id)
        if is_served and on_behalf is None and api.handle_plain is not None:
            answer = api.handle_plain(self._context, session, frame, position, version, correlation_id)
        if answer is None:
            if not is_served:
                version = self._version_for(api, version)
            session.client_id = client_id
            header = RequestHeader(api_key, version, correlation_id, client_id)
            request = Request(header, session, self._context, on_behalf)
            answer = self._handle(api, request, frame, position, is_served)
        quotas = self._context.quotas
        if quotas is not None:
            own_id = client_id or ""
            if on_behalf is not None:
                quotas.on_gateway_request(on_behalf.principal.name, own_id, self._monotonic() - started)
            elif quotas.has_limits(session.principal.name, own_id):
                seconds = self._monotonic() - started
                measured = MeasuredRequest(api_key, version, own_id, len(frame), seconds)
                quotas.on_request(session, measured, answer)
        if isinstance(answer, PendingResponse) and not answer.is_done:
            answer.observe(self, api.key, started)
        else:
            self.observe(api.key, started)
        return answer

    def observe(self, api_key: int, started: float) -> None:
        """Record the duration of a request that arrived at `started` and has just got its response."""
        self._durations[api_key].observe(self._monotonic() - started)

    @staticmethod
    def _version_for(api: Api, version: int) -> int:
        """Version of the response to a request in an unsupported version: 0 for ApiVersions. Raises ProtocolError for
        other APIs.
        """
        if api.key != API_VERSIONS:
            raise ProtocolError(f"unsupported version {version} of api key {api.key}")
        # Every client can read version 0; the client then repeats the request in a supported version (KIP-511).
        return 0

    def _handle(
        self, api: Api, request: Request, frame: memoryview, position: int, is_served: bool
    ) -> Answer:
        if api.handle_raw is not None:
            return api.handle_raw(request, frame, position)
        message = None
        if is_served:
            if api.decode is None:
                message = decode_request(api.key, request.version, frame, position)
            else:
                message = api.decode(frame, position, request.version)
        return self._answer_message(api, request, message)

    def _answer_message(self, api: Api, request: Request, message: Any) -> Answer:
        assert api.handle is not None
        result = api.handle(request, message)
        audit = self._context.authorization.audit
        if audit is not None and api.key in CHANGES and not getattr(message, "validate_only", False):
            result = _audited(audit, request, message, result)
        if isinstance(result, list | PendingResponse):
            return result
        if not inspect.isawaitable(result):
            return [_encode(request.header, result)]
        later = PendingResponse(barrier=not api.is_concurrent)
        task = asyncio.ensure_future(self._finish(request.header, result, later))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return later

    async def _finish(self, header: RequestHeader, result: Awaitable[Fields], later: PendingResponse) -> None:
        try:
            later.resolve([_encode(header, await result)])
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not leave the connection waiting for ever
            later.fail(error)

    async def close(self) -> None:
        """Cancel the handlers that are still running."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._context.authorization.audit is not None:
            await self._context.authorization.audit.close()


def _audited(audit: AuditLog, request: Request, message: Any, result: Any) -> Any:
    """Result of a changing request; the audit log records it once it is available."""
    if not inspect.isawaitable(result):
        _record(audit, request, message, result)
        return result

    async def later() -> Fields:
        fields: Fields = await result
        _record(audit, request, message, fields)
        return fields

    return later()


def _record(audit: AuditLog, request: Request, message: Any, fields: Fields) -> None:
    caller = request.caller
    audit.change(api_name(request.header.api_key), str(caller.principal), caller.host, message, fields)


def _named_client(session: Session, client_id: str) -> tuple[str, OnBehalf]:
    """Client id of the gateway, and the client on whose behalf it sent the request. Raises ProtocolError if the
    connection may not send requests on behalf of others.
    """
    own, actor = split_actor(client_id)
    if not session.is_gateway:
        raise ProtocolError(
            f"{session.principal} sent a request on behalf of another client; only users in gateway.users may do this"
        )
    if actor is None:
        return own, OnBehalf(BROKER, session.host)
    return own, OnBehalf(Principal("User", actor.user), actor.host)


def _encode(header: RequestHeader, fields: Fields) -> bytes:
    return encode_response_frame(header, fields)
