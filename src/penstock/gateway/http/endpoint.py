"""What an endpoint is: declared once, and routes, checks of what comes in and the OpenAPI document follow from it.

A handler is called with parameters and a body that are as declared; it returns a response, or raises a `Problem`, a
BrokerError, OutcomeUnknown or OSError, which become problem documents in one place (`front.py`).
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
"""The tag of endpoints that tell of the process, to its very end."""


@dataclass(slots=True)
class Call:
    """One request to one endpoint."""

    context: EndpointContext
    request: Request
    request_id: str
    client: str
    """Whose limits it counts against: an address, until there are users."""
    parameters: Mapping[str, Any]
    """By name, of path, query and headers together; absent ones have their default or are not there."""
    body: Any = None
    """Parsed JSON, or the bytes of any other type."""
    content_type: str = ""

    def allows(self, operation: str, kind: str, name: str) -> bool:
        return self.context.authorize(self.client, operation, kind, name)

    def require(self, operation: str, kind: str, name: str) -> None:
        """BrokerError where it is not allowed."""
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
    """As starlette writes it: `/v1/topics/{topic}`."""
    name: str
    """The operationId."""
    tag: str
    summary: str
    handler: Handler
    responses: Mapping[int, DeclaredResponse]
    """Beside problems, which every endpoint may answer with."""
    parameters: tuple[Parameter, ...] = ()
    bodies: Mapping[str, Schema | None] = field(default_factory=dict)
    """By content type; JSON is checked against its schema. Empty: a request with a body is refused."""
    is_body_required: bool = True
    assumes_json: bool = False
    """Whether a body without a Content-Type is taken for JSON."""
    is_stream: bool = False
    """Whether the answer may last: push, and long polls that hold no other resource."""
    socket_messages: Mapping[str, Schema] = field(default_factory=dict)
    """For a WebSocket: the JSON messages by their sender, `client` and `gateway`."""
    needs: tuple[RequiredPermission, ...] = ()
    """What the client must be allowed."""


def path(name: str, schema: Schema, doc: str) -> Parameter:
    return Parameter(name, "path", schema, doc, required=True)


def query(name: str, schema: Schema, doc: str, *, required: bool = False) -> Parameter:
    return Parameter(name, "query", schema, doc, required)


def header(name: str, schema: Schema, doc: str) -> Parameter:
    return Parameter(name, "header", schema, doc)
