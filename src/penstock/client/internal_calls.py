"""Requests of `Admin` that librdkafka cannot send: they run on the internal client, in a separate event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from penstock.client.errors import BrokerUnreachable, ClientError, TimedOut
from penstock.client.internal_connection import InternalConnection
from penstock.unreachable import Unreachable

if TYPE_CHECKING:
    from penstock.internal_client.client import InternalClient

T = TypeVar("T")


class InternalCalls:
    def __init__(
        self, connection: InternalConnection, timeout_s: float, errors: Mapping[str, type[ClientError]]
    ) -> None:
        """`errors` maps Kafka's names of broker errors to exceptions of this client."""
        self._connection = connection
        self._timeout_s = timeout_s
        self._errors = errors

    def run(self, work: Callable[[InternalClient], Awaitable[T]]) -> T:
        # Clients that never send these requests do not import the modules of brokers.
        from penstock.errors import BrokerError
        from penstock.internal_client.client import run

        client = self._connection.open("penstock-admin", self._timeout_s)
        try:
            return run(client, work)
        except Unreachable as error:
            raise BrokerUnreachable(str(error)) from None
        except BrokerError as error:
            name = error.code.name.upper()
            raise self._errors.get(name, ClientError)(f"{error} ({name})", name) from None
        except OSError as error:
            raise TimedOut(f"the cluster did not respond: {error}") from None
