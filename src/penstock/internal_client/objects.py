"""Calls to the owners of named objects, such as schedules. An instance serves one kind of objects."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.api import RESPONSE_SECONDS, check_error
from penstock.internal_client.retries import retry
from penstock.internal_client.routes import CoordinatorKind, Routes
from penstock.net.broker_connection import BrokerConnection
from penstock.wire.object_call import (
    LIST,
    ObjectCallRequest,
    decode_object_call_response,
    encode_object_call_request,
)

LIST_SECONDS = 10.0


class ObjectCalls:
    def __init__(self, routes: Routes, kind: CoordinatorKind) -> None:
        self._routes = routes
        self._kind = kind

    async def call(self, name: str, verb: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Make a call at the owner of the name, with retries. Only for calls that may be sent twice."""
        encoded = msgspec.msgpack.encode(arguments or {})
        request = ObjectCallRequest(self._kind, verb, name, encoded)
        return await self._routes.at_coordinator(
            self._kind, name, lambda connection: _call(connection, request)
        )

    async def all(self) -> list[dict[str, Any]]:
        """Entries of all objects of the kind that the user may see, sorted by name."""

        async def attempt() -> list[dict[str, Any]]:
            answers = await self._routes.at_all(
                lambda connection: _call(connection, ObjectCallRequest(self._kind, LIST, "", b""))
            )
            _check_complete(answers)
            found = {entry["name"]: entry for answer in answers for entry in answer["objects"]}
            return [entry for _, entry in sorted(found.items())]

        return await retry(attempt, LIST_SECONDS)


def _check_complete(answers: list[dict[str, Any]]) -> None:
    """Raise a retriable error if the answers lack a shard, because its owner is changing."""
    partitions = max((answer["partitions"] for answer in answers), default=0)
    seen = {shard for answer in answers for shard in answer["shards"]}
    if len(seen) < partitions:
        raise BrokerError(
            ErrorCode.coordinator_load_in_progress,
            f"{partitions - len(seen)} of {partitions} partitions with objects have no owner at present",
        )


async def _call(connection: BrokerConnection, request: ObjectCallRequest) -> Any:
    correlation_id = connection.next_correlation_id()
    frame = encode_object_call_request(correlation_id, connection.client_id, request)
    async with asyncio.timeout(RESPONSE_SECONDS):
        response = decode_object_call_response(await connection.exchange(correlation_id, frame))
    check_error(response.error_code, response.error_message)
    return msgspec.msgpack.decode(response.answer)
