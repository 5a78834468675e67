"""A Kafka API, with the one version that this client uses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.errors import BrokerError, ErrorCode
from penstock.net.broker_connection import BrokerConnection

RESPONSE_SECONDS = 30.0
"""Seconds without a response after which a broker counts as lost, unless the request asks it to wait."""


class ClientApi(NamedTuple):
    key: int
    version: int

    async def call(
        self,
        connection: BrokerConnection,
        fields: Mapping[str, Any],
        timeout_seconds: float = RESPONSE_SECONDS,
    ) -> Any:
        """Send one request and return its decoded response. Raises OSError if no response arrives in time."""
        async with asyncio.timeout(timeout_seconds):
            return await connection.request(self.key, self.version, fields)


def check_error(code: int, message: str | None = None) -> None:
    """Raise a BrokerError for an error code other than 0."""
    error = error_of(code, message)
    if error is not None:
        raise error


def error_of(code: int, message: str | None = None) -> BrokerError | None:
    """Return the BrokerError for an error code; None for 0."""
    return BrokerError(ErrorCode(code), message or "") if code else None
