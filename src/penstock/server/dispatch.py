"""Dispatch of a frame to the handler of its API, and encoding of the response.

A handler module declares its `API`: key, version range, and a function. The function of an ordinary API
takes `(request, message)`, where the message is the decoded request, and returns the response as nested
mappings (the wire layer drops fields that a version does not have). It may be `async`, and then later
requests of its connection wait for it. A raw API (Produce, Fetch, Heartbeat) takes `(request, frame,
position)` and returns parts to send, a `PendingResponse`, or None for no response. ApiVersions is derived from the
table.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import BrokerError, ProtocolError
from penstock.model import BrokerId
from penstock.net.response import Answer, PendingResponse
from penstock.server.context import BrokerContext
from penstock.server.follower_session import FollowerSession
from penstock.server.key_session import KeySession
from penstock.server.security import DENIED, SUPPORTED_OPERATIONS, Operation, Principal, ResourceType
from penstock.wire.apis import API_VERSIONS
from penstock.wire.broker_handshake import Challenge
from penstock.wire.headers import RequestHeader, decode_request_header
from penstock.wire.messages import decode_request, encode_response_frame

Fields = Mapping[str, Any]
MessageHandler = Callable[["Request", Any], "Fields | Awaitable[Fields]"]
RawHandler = Callable[["Request", memoryview, int], Answer]


@dataclass(frozen=True, slots=True)
class Api:
    """API as this broker serves it."""

    key: int
    min_version: int
    max_version: int
    handle: MessageHandler | None = None
    handle_raw: RawHandler | None = None
    decode: Callable[[memoryview, int, int], Any] | None = None
    """Decoder of the request from a position on, in a version; the schema's unless given."""


@dataclass(slots=True, eq=False)
class Session:
    """State of one client connection."""

    peer: str
    host: str
    principal: Principal
    number: int = 0
    """Number of the connection (`ConnectionNumbers`)."""
    challenge: Challenge | None = None
    """Challenge that a broker still has to answer to authenticate; None otherwise."""
    broker_id: BrokerId | None = None
    """Id of the authenticated broker; None for other clients."""
    follower: FollowerSession | None = None
    """Fetch session of that broker as a follower."""
    keys: KeySession | None = None
    """Lookups by key of the connection."""


@dataclass(slots=True)
class Request:
    """Request with its header, its client connection and the parts of the broker."""

    header: RequestHeader
    session: Session
    context: BrokerContext

    @property
    def version(self) -> int:
        return self.header.api_version

    def allowed(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        return self.context.authorizer.authorize(
            self.session.principal, self.session.host, operation, kind, name
        )

    def require(self, operation: Operation, kind: ResourceType, name: str) -> None:
        if not self.allowed(operation, kind, name):
            raise BrokerError(
                DENIED[kind], f"{self.session.principal} may not {operation.name} {kind.name} {name}"
            )

    def authorized_operations(self, kind: ResourceType, name: str) -> int:
        """Bit field of authorized operations in Metadata, DescribeCluster and DescribeGroups."""
        return sum(1 << op for op in SUPPORTED_OPERATIONS[kind] if self.allowed(op, kind, name))


class Dispatcher:
    """Table of the APIs, and dispatch of frames to them."""

    def __init__(self, context: BrokerContext, apis: Iterable[Api]) -> None:
        self._context = context
        self._apis = {api.key: api for api in apis}
        self._metrics = context.metrics
        self._monotonic = context.clock.monotonic
        self._tasks: set[asyncio.Task[None]] = set()

    def dispatch(self, session: Session, frame: memoryview) -> Answer:
        """Serve one frame; ProtocolError when it is not a request that this broker knows."""
        started = self._monotonic()
        header, position = decode_request_header(frame)
        api = self._apis.get(header.api_key)
        if api is None:
            raise ProtocolError(f"unknown api key {header.api_key}")
        if not api.min_version <= header.api_version <= api.max_version:
            if api.key != API_VERSIONS:
                raise ProtocolError(f"unsupported version {header.api_version} of api key {api.key}")
            # The response has version 0, which every client can read; the client then sends a version of the
            # range (KIP-511).
            header = RequestHeader(header.api_key, 0, header.correlation_id, header.client_id)
            answer: Answer = self._answer_message(api, Request(header, session, self._context), None)
        elif api.handle_raw is not None:
            answer = api.handle_raw(Request(header, session, self._context), frame, position)
        else:
            if api.decode is None:
                message = decode_request(header.api_key, header.api_version, frame, position)
            else:
                message = api.decode(frame, position, header.api_version)
            answer = self._answer_message(api, Request(header, session, self._context), message)
        if type(answer) is PendingResponse:
            answer.when_done(lambda: self._metrics.observe_request(api.key, self._monotonic() - started))
        else:
            self._metrics.observe_request(api.key, self._monotonic() - started)
        return answer

    def _answer_message(self, api: Api, request: Request, message: Any) -> Answer:
        assert api.handle is not None
        result = api.handle(request, message)
        if not inspect.isawaitable(result):
            return [_encode(request.header, result)]
        later = PendingResponse(barrier=True)
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


def _encode(header: RequestHeader, fields: Fields) -> bytes:
    return encode_response_frame(header, fields)
