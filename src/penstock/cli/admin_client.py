"""Internal client for commands: its errors become Failures that name the address or the refused subject."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from penstock.cli.failures import ExitCode, Failure
from penstock.errors import BrokerError, ErrorCode, ProtocolError
from penstock.internal_client.api import RESPONSE_SECONDS
from penstock.internal_client.client import InternalClient, run
from penstock.internal_client.errors import OutcomeUnknown
from penstock.unreachable import Unreachable

T = TypeVar("T")

CLIENT_ID = "penstock-cli"
RETRY_SECONDS = 30.0
NO_TOPIC = "`penstock topic list` shows the topics, `penstock topic create` makes one."
NO_GROUP = "`penstock group list` shows the groups."
_HINTS = {
    ErrorCode.unknown_topic_or_partition: NO_TOPIC,
    ErrorCode.topic_already_exists: "`penstock topic describe` shows it, `penstock topic alter` changes it.",
    ErrorCode.group_id_not_found: NO_GROUP,
    ErrorCode.non_empty_group: "Stop its members first; `penstock group describe` shows them.",
    ErrorCode.request_timed_out: "The broker was reached but did not respond in time.",
}
_NAME_ANOTHER = "Name one with --bootstrap HOST:PORT or PENSTOCK_BOOTSTRAP."


def admin_client(bootstrap: str, response_seconds: float = RESPONSE_SECONDS) -> InternalClient:
    """Create a client of the cluster at an address, without connecting."""
    try:
        return InternalClient.to(bootstrap, CLIENT_ID, RETRY_SECONDS, response_seconds)
    except ValueError as error:
        raise Failure(f"{str(error)!r} is not HOST:PORT", code=ExitCode.USAGE) from None


def run_admin(
    bootstrap: str,
    work: Callable[[InternalClient], Awaitable[T]],
    subject: str = "",
    response_seconds: float = RESPONSE_SECONDS,
) -> T:
    """Run `work` with a client in a new event loop; `subject` is named when a broker refuses a request."""

    with reported(subject):
        return run(admin_client(bootstrap, response_seconds), work)


@contextmanager
def reported(subject: str = "") -> Iterator[None]:
    """Convert errors of the internal client to Failures."""
    prefix = f"{subject}: " if subject else ""
    try:
        yield
    except Unreachable as error:
        raise Failure(str(error), _NAME_ANOTHER) from None
    except OutcomeUnknown as error:
        raise Failure(
            f"{prefix}the response was lost ({error}), so the change may or may not have been made",
            "Look at the present state, then run the command again if needed.",
        ) from None
    except BrokerError as error:
        hint = _HINTS.get(error.code, "")
        raise Failure(f"{prefix}{error} ({error.code.name.upper()})", hint) from None
    except ProtocolError as error:
        raise Failure(f"{prefix}the broker sent a response that cannot be decoded: {error}") from None
