"""The declaration of an endpoint, from which routes, validation of requests and the OpenAPI document follow.

A handler gets parameters and a body that match the declaration; it returns a response, or raises a `Problem`,
a BrokerError, OutcomeUnknown or OSError, which become problem documents in one place (`application.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.authorization import RequiredPermission, require
from penstock.gateway.endpoint_context import EndpointContext
from penstock.gateway.http.schema import Schema

JSON = "application/json"
OCTETS = "application/octet-stream"
SYSTEM = "Gateway"
"""Tag of the endpoints about the process itself, which are served until it ends."""


@dataclass(slots=True)
class Call:
    """One request to one endpoint."""

    context: EndpointContext
    request: Request
    request_id: str
    client: str
    """The client whose limits the request counts against: an IP address."""
    parameters: Mapping[str, Any]
    """Parameters of path, query and headers by name. An absent parameter has its default, or no entry."""
    body: Any = None
    """Parsed JSON, or the bytes of any other content type."""
    content_type: str = ""

    def allows(self, operation: str, kind: str, name: str) -> bool:
        return self.context.authorize(self.client, operation, kind, name)

    def require(self, operation: str, kind: str, name: str) -> None:
        """Raise a BrokerError where the client may not do this."""
        require(self.context.authorize, self.client, operation, kind, name)


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    place: str
    """`path`, `query` or `header`."""
    schema: Schema
    doc: str
    required: bool = False


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
    is_body_required: bool = True
    assumes_json: bool = False
    """Whether a body without a Content-Type is read as JSON."""
    is_stream: bool = False
    """Whether the response may take long: streams, and long polls that hold no other resource."""
    socket_messages: Mapping[str, Schema] = field(default_factory=dict)
    """The JSON messages of a WebSocket by their sender, `client` and `gateway`."""
    needs: tuple[RequiredPermission, ...] = ()
    """Permissions that the client needs."""


def path(name: str, schema: Schema, doc: str) -> Parameter:
    return Parameter(name, "path", schema, doc, required=True)


def query(name: str, schema: Schema, doc: str, *, required: bool = False) -> Parameter:
    return Parameter(name, "query", schema, doc, required)


def header(name: str, schema: Schema, doc: str) -> Parameter:
    return Parameter(name, "header", schema, doc)
