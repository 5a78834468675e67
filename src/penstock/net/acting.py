"""Identity of the client for which a gateway makes a request.

A gateway that has proved its identity names the user and host of its own client with each request, and the
broker authorizes that user. The name is part of the client id, because that is the only field in every
version of every request: `CLIENT_ID NUL host NUL user`. Without host and user the request is the gateway's
own. Brokers refuse such a client id on any other connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import NamedTuple

from penstock.errors import ProtocolError

MARK = "\0"


class Actor(NamedTuple):
    """User that a gateway makes a request for, and the address that the user comes from."""

    user: str
    host: str


acting_for: ContextVar[Actor | None] = ContextVar("acting_for", default=None)
"""Client whose request the running task serves; None if the task makes requests of the gateway's own."""


@contextmanager
def own_requests() -> Iterator[None]:
    """Make the requests of the running task the gateway's own, because the client's rights were checked
    already or are irrelevant.
    """
    token = acting_for.set(None)
    try:
        yield
    finally:
        acting_for.reset(token)


def own_context() -> Context:
    """Context for work that is shared by the requests of several clients. Its requests name no client."""
    return Context()


def with_actor(client_id: str, actor: Actor | None) -> str:
    """Client id of a request that is made for `actor`."""
    if actor is None:
        return client_id
    return f"{client_id.partition(MARK)[0]}{MARK}{actor.host}{MARK}{actor.user}"


def of_gateway(client_id: str) -> str:
    """Client id of a request that a gateway makes for itself, with its own rights."""
    return f"{client_id}{MARK}{MARK}"


def split_actor(client_id: str) -> tuple[str, Actor | None]:
    """Split a client id that contains MARK into client id and client; the client is None for a gateway's own
    request. Raises ProtocolError.
    """
    own, host, user = (*client_id.split(MARK, 2), "", "")[:3]
    if bool(host) != bool(user):
        raise ProtocolError("malformed client id: the client on whose behalf it is sent has no host or user")
    return own, Actor(user, host) if user else None
