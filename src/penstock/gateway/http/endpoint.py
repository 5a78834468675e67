"""The declaration of an endpoint, from which routes, validation of requests and the OpenAPI document follow.

A handler gets parameters and a body that match the declaration; it returns a response, or raises a `Problem`,
a BrokerError, OutcomeUnknown or OSError, which become problem documents in one place (`application.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.responses import Response

from penstock.gateway.authorization import RequiredPermission, require
from penstock.gateway.endpoint_context import EndpointContext
from penstock.gateway.http.schema import Schema
from penstock.gateway.reply import Reply
from penstock.security.http_session import HttpLogin

JSON = "application/json"
OCTETS = "application/octet-stream"
SYSTEM = "Gateway"
"""Tag of the endpoints about the process itself, which are served until it ends."""


@dataclass(slots=True)
class Call:
    """One request to one endpoint."""

    context: EndpointContext
    request_id: str
    client: str
    """The client whose limits the request counts against: an IP address."""
    parameters: Mapping[str, Any]
    """Parameters of path, query and headers by name. An absent parameter has its default, or no entry."""
    body: Any = None
    """Parsed JSON, or the bytes of any other content type."""
    content_type: str = ""
    login: HttpLogin | None = None
    """Login of the client; None where clients do not log in."""

    async def learn(self, operation: str, kind: str, names: Iterable[str]) -> None:
        """Fetch the decisions that `allows` is asked for next."""
        await self.context.learn_shown(self.client, ((operation, kind, name) for name in names))

    def allows(self, operation: str, kind: str, name: str) -> bool:
        decide = self.context.shows or self.context.authorize
        return decide(self.client, operation, kind, name)

    async def require(self, operation: str, kind: str, name: str) -> None:
        """Raise a BrokerError where the client may not do this."""
        await self.context.learn(self.client, ((operation, kind, name),))
        require(self.context.authorize, self.client, operation, kind, name, self.context.shows)


Handler = Callable[[Call], Awaitable[Response]]


class Begun(Protocol):
    """Work of a handler that was begun without a task."""

    def cancel(self) -> object:
        """Give the work up: the client has left, and nothing may be given to the reply any more."""
        ...


class _NotCancelled:
    def cancel(self) -> None:
        pass


NOT_CANCELLED: Begun = _NotCancelled()
"""Begun work without a way to cancel it: a message that was sent is stored even if its client leaves."""

BeginHandler = Callable[[Call, Reply[Response]], Begun | None]
"""A handler without a task: it gives the response to the reply, at once or in a later loop turn.

None where the work needs a task, so that the `Handler` has to do it; nothing was begun then.
"""


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    place: str
    """`path`, `query` or `header`."""
    schema: Schema
    doc: str
    required: bool = False
    header: bytes = field(init=False)
    """Name of a header as `collect_headers` has it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "header", self.name.lower().encode())


@dataclass(frozen=True, slots=True)
class DeclaredResponse:
    doc: str
    schema: Schema | None = None
    content_type: str = JSON


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    """The path in starlette's form: `/v1/topics/{topic}`."""
    name: str
    """The operationId of OpenAPI."""
    tag: str
    summary: str
    handler: Handler
    responses: Mapping[int, DeclaredResponse]
    """Responses by status, without the problem documents that every endpoint may send."""
    parameters: tuple[Parameter, ...] = ()
    bodies: Mapping[str, Schema | None] = field(default_factory=dict)
    """Schemas of the body by content type; JSON is validated. Empty where a request with a body is refused."""
    json_max_bytes: int = 0
    """Limit of a JSON body of this endpoint; `gateway.json.max.bytes` counts where it is larger."""
    is_body_required: bool = True
    assumes_json: bool = False
    """Whether a body without a Content-Type is read as JSON."""
    is_plain: bool = False
    """Whether the handler returns complete JSON responses alone, so that requests need no ASGI."""
    begin: BeginHandler | None = None
    """The handler without a task, for plain requests."""
    is_stream: bool = False
    """Whether the response may take long: streams, and long polls that hold no other resource."""
    socket_messages: Mapping[str, Schema] = field(default_factory=dict)
    """The JSON messages of a WebSocket by their sender, `client` and `gateway`."""
    needs: tuple[RequiredPermission, ...] = ()
    """Permissions that the client needs."""
    needs_user: bool = True
    """Whether the client must have logged in, where clients log in."""
    by_name: Mapping[str, Parameter] = field(init=False)
    """The parameters by name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {each.name: each for each in self.parameters})


def path(name: str, schema: Schema, doc: str) -> Parameter:
    return Parameter(name, "path", schema, doc, required=True)


def query(name: str, schema: Schema, doc: str, *, required: bool = False) -> Parameter:
    return Parameter(name, "query", schema, doc, required)


def header(name: str, schema: Schema, doc: str) -> Parameter:
    return Parameter(name, "header", schema, doc)
