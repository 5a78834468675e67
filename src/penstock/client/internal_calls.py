"""Calls of `Admin` that librdkafka does not have: with the internal client, in an event loop of their own."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from penstock.client.bootstrap import DEFAULT_BOOTSTRAP, VARIABLE
from penstock.client.errors import BrokerUnreachable, ClientError, InvalidSetting, TimedOut
from penstock.unreachable import Unreachable

if TYPE_CHECKING:
    from penstock.internal_client.client import InternalClient

T = TypeVar("T")


class InternalCalls:
    def __init__(
        self, bootstrap: str | None, timeout_s: float, errors: Mapping[str, type[ClientError]]
    ) -> None:
        """`errors` has the exceptions of this client for errors of brokers, by Kafka's names of the errors."""
        self._bootstrap = bootstrap or os.environ.get(VARIABLE) or DEFAULT_BOOTSTRAP
        self._timeout_s = timeout_s
        self._errors = errors

    def run(self, work: Callable[[InternalClient], Awaitable[T]]) -> T:
        # Clients that make no such call do not load what only brokers need.
        from penstock.errors import BrokerError
        from penstock.internal_client.client import InternalClient, run
        from penstock.internal_client.client_security import ClientSecurity

        try:
            security = ClientSecurity.from_environment(os.environ)
            client = InternalClient.to(self._bootstrap, "penstock-admin", self._timeout_s, security=security)
        except ValueError as error:
            raise InvalidSetting(f"{error!s} is not HOST:PORT") from None
        try:
            return run(client, work)
        except Unreachable as error:
            raise BrokerUnreachable(str(error)) from None
        except BrokerError as error:
            name = error.code.name.upper()
            raise self._errors.get(name, ClientError)(f"{error} ({name})", name) from None
        except OSError as error:
            raise TimedOut(f"the cluster did not respond: {error}") from None
