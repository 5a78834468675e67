"""Clients on behalf of whom a gateway makes requests.

A gateway that has proved its identity names the user and host of its own client with each request, and the
broker authorizes that user. The name is part of the client id, the one field that every version of every request
has: `CLIENT_ID NUL host NUL user`. Without host and user the request is the gateway's own. Brokers refuse such a
client id from any other connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import NamedTuple

from penstock.errors import ProtocolError

MARK = "\0"


class Actor(NamedTuple):
    """User of a gateway, and the address it comes from."""

    user: str
    host: str


acting_for: ContextVar[Actor | None] = ContextVar("acting_for", default=None)
"""Client whose request the running task serves; None for the gateway's own requests."""


@contextmanager
def own_requests() -> Iterator[None]:
    """Make the requests of the running task the gateway's own, because the client's rights were checked already or
    do not matter.
    """
    token = acting_for.set(None)
    try:
        yield
    finally:
        acting_for.reset(token)


def own_context() -> Context:
    """Context for work that the requests of several clients share: its requests name no client."""
    return Context()


def with_actor(client_id: str, actor: Actor | None) -> str:
    """Client id of a request on behalf of a client."""
    if actor is None:
        return client_id
    return f"{client_id.partition(MARK)[0]}{MARK}{actor.host}{MARK}{actor.user}"


def of_gateway(client_id: str) -> str:
    """Client id of requests that a gateway makes for itself, with the rights of a gateway."""
    return f"{client_id}{MARK}{MARK}"


def split_actor(client_id: str) -> tuple[str, Actor | None]:
    """Client id and named client of a client id with MARK; None for a gateway's own request. Raises
    ProtocolError.
    """
    own, host, user = (*client_id.split(MARK, 2), "", "")[:3]
    if bool(host) != bool(user):
        raise ProtocolError("malformed client id: a client is named without its host or user")
    return own, Actor(user, host) if user else None
