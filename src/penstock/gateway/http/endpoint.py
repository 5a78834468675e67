"""Declaration of an endpoint: the source of its route, the validation of its requests, and the OpenAPI document.

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
"""Tag of the endpoints about the process itself, which are served even while the gateway is stopping."""


@dataclass(slots=True)
class Call:
    """One request to one endpoint."""

    context: EndpointContext
    request_id: str
    client: str
    """IP address of the client, which the request is counted for."""
    parameters: Mapping[str, Any]
    """Parameters of path, query and headers by name. If a request lacks one, it has the default value or no entry."""
    body: Any = None
    """Body: the value of JSON, the bytes of any other content type, or None."""
    content_type: str = ""
    login: HttpLogin | None = None
    """Login of the client; None if clients do not log in."""

    async def learn(self, operation: str, kind: str, names: Iterable[str]) -> None:
        """Fetch the decisions that `allows` will be asked for."""
        await self.context.learn_shown(self.client, ((operation, kind, name) for name in names))

    def allows(self, operation: str, kind: str, name: str) -> bool:
        decide = self.context.shows or self.context.authorize
        return decide(self.client, operation, kind, name)

    async def require(self, operation: str, kind: str, name: str) -> None:
        """Raise BrokerError unless the client has this permission."""
        await self.context.learn(self.client, ((operation, kind, name),))
        require(self.context.authorize, self.client, operation, kind, name, self.context.shows)


Handler = Callable[[Call], Awaitable[Response]]


class Begun(Protocol):
    """Work of a handler that was begun without a task."""

    def cancel(self) -> object:
        """Give up the work: the client has disconnected. The reply must not be called after this."""
        ...


class _NotCancelled:
    def cancel(self) -> None:
        pass


NOT_CANCELLED: Begun = _NotCancelled()
"""Work that cannot be cancelled, such as a send: the message is stored even if the client disconnects."""

BeginHandler = Callable[[Call, Reply[Response]], Begun | None]
"""Handler that runs without a task: it gives the response to the reply, at once or in a later loop turn.

It returns None, and has begun nothing, if the work needs a task: then `Endpoint.handler` does it.
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
    """Name in lower case, the key of a header in the result of `collect_headers`."""

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
    """Responses by status. Problem documents, which every endpoint may send, are not listed."""
    parameters: tuple[Parameter, ...] = ()
    bodies: Mapping[str, Schema | None] = field(default_factory=dict)
    """Schemas of the body by content type; only JSON is validated. If empty, a request with a body is refused."""
    json_max_bytes: int = 0
    """Maximum size of a JSON body at this endpoint, if it is larger than `gateway.json.max.bytes`."""
    is_body_required: bool = True
    assumes_json: bool = False
    """True if a body without a Content-Type is read as JSON."""
    is_plain: bool = False
    """True if the handler returns only complete JSON responses, so that requests need no ASGI."""
    begin: BeginHandler | None = None
    """Handler for plain requests that runs without a task; None if there is none."""
    is_stream: bool = False
    """True if the response may take long: streams, and long polls that hold no other resource."""
    socket_messages: Mapping[str, Schema] = field(default_factory=dict)
    """Schemas of the JSON messages of a WebSocket by their sender, `client` or `gateway`."""
    needs: tuple[RequiredPermission, ...] = ()
    """Permissions that the client needs."""
    needs_user: bool = True
    """False if the endpoint needs no login, even on a gateway whose clients log in."""
    by_name: Mapping[str, Parameter] = field(init=False)
    """Parameters by name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {each.name: each for each in self.parameters})


def path(name: str, schema: Schema, doc: str) -> Parameter:
    return Parameter(name, "path", schema, doc, required=True)


def query(name: str, schema: Schema, doc: str, *, required: bool = False) -> Parameter:
    return Parameter(name, "query", schema, doc, required)


def header(name: str, schema: Schema, doc: str) -> Parameter:
    return Parameter(name, "header", schema, doc)
