"""Internal client for commands: its errors become Failures with the address, or with the subject of the refused
request.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from penstock.cli.failures import ExitCode, Failure
from penstock.errors import BrokerError, ErrorCode, ProtocolError
from penstock.internal_client.api import RESPONSE_SECONDS
from penstock.internal_client.client import InternalClient, run
from penstock.internal_client.client_security import PASSWORD_FILE, USER, ClientSecurity
from penstock.internal_client.errors import OutcomeUnknown
from penstock.unreachable import ConnectionLost, LoginRefused, NotKafka, Unreachable

T = TypeVar("T")

CLIENT_ID = "penstock-cli"
RETRY_SECONDS = 30.0
NO_TOPIC = "`penstock topic list` shows the topics, `penstock topic create` creates one."
NO_GROUP = "`penstock group list` shows the groups."
_HINTS = {
    ErrorCode.unknown_topic_or_partition: NO_TOPIC,
    ErrorCode.topic_already_exists: "`penstock topic describe` shows the topic, `penstock topic alter` changes it.",
    ErrorCode.group_id_not_found: NO_GROUP,
    ErrorCode.non_empty_group: "Stop the members of the group first; `penstock group describe` shows them.",
    ErrorCode.request_timed_out: "The broker is reachable but did not complete the request in time; try again.",
}
NAME_A_BROKER = "Name a broker with --bootstrap HOST:PORT or PENSTOCK_BOOTSTRAP."
SET_THE_USER = f"Set {USER} and {PASSWORD_FILE}, or name a context that has them with --context."


def admin_client(bootstrap: str, response_seconds: float = RESPONSE_SECONDS) -> InternalClient:
    """Create a client of the cluster at an address, without connecting."""
    try:
        security = ClientSecurity.from_environment(os.environ)
        return InternalClient.to(bootstrap, CLIENT_ID, RETRY_SECONDS, response_seconds, security)
    except ValueError as error:
        raise not_an_address(str(error)) from None


def run_admin(
    bootstrap: str,
    work: Callable[[InternalClient], Awaitable[T]],
    subject: str = "",
    response_seconds: float = RESPONSE_SECONDS,
) -> T:
    """Run `work` with a client in a new event loop. If a broker refuses a request, the Failure contains `subject`."""

    with reported(subject):
        return run(admin_client(bootstrap, response_seconds), work)


@contextmanager
def reported(subject: str = "") -> Iterator[None]:
    """Convert errors of the internal client to Failures."""
    prefix = f"{subject if subject.isprintable() else repr(subject)}: " if subject else ""
    try:
        yield
    except Unreachable as error:
        raise Failure(str(error), _next_step(error)) from None
    except OutcomeUnknown as error:
        raise Failure(
            f"{prefix}the response was lost ({error}), so the change may or may not have been made",
            "Check whether the change was made, then run the command again if needed.",
        ) from None
    except BrokerError as error:
        hint = _HINTS.get(error.code, "")
        raise Failure(f"{prefix}{error} ({error.code.name.upper()})", hint) from None
    except ProtocolError as error:
        raise Failure(
            f"{prefix}the broker sent a response that cannot be decoded: {error}",
            "Check that the address is that of a Kafka broker, and its version.",
        ) from None


def _next_step(error: Unreachable) -> str:
    """Return the hint for a cluster that cannot be reached. A listener with authentication closes connections that do
    not log in.
    """
    problems = error.problems.values()
    if any(isinstance(each, LoginRefused) for each in problems):
        return SET_THE_USER
    is_closed = any(isinstance(each, ConnectionLost) and not isinstance(each, NotKafka) for each in problems)
    if is_closed and not os.environ.get(USER):
        return f"{NAME_A_BROKER} If the broker has users: {SET_THE_USER}"
    return NAME_A_BROKER


def not_an_address(text: str) -> Failure:
    return Failure(f"{text!r} is not HOST:PORT", NAME_A_BROKER, code=ExitCode.USAGE)
