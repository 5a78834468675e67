"""Inspect requests to single brokers about their own state: changes, connections, log lines, times of
partitions.

The size of every answer is limited. If `complete` is false in an answer, the caller asks for the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from penstock.internal_client.api import RESPONSE_SECONDS, check_error
from penstock.internal_client.routes import Routes
from penstock.model import BrokerId
from penstock.net.broker_connection import BrokerConnection
from penstock.wire.inspect import InspectRequest, decode_inspect_response, encode_inspect_request

QuestionArguments: TypeAlias = Mapping[str, int | str | list[str]]

JOURNALS = ("topics", "logs", "groups")
"""Journals of a broker: topics of the cluster, logs that the broker leads, groups that it coordinates."""


class InspectionCalls:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    def close(self) -> None:
        """Close the connections, if this object has routes of its own."""
        self._routes.close()

    async def broker_ids(self) -> list[BrokerId]:
        """Read the ids of the brokers in the cluster, in order."""
        await self._routes.read_brokers()
        return sorted(self._routes.brokers)

    async def activity(self, node_id: BrokerId, epoch: int, versions: Mapping[str, int]) -> Any:
        """Return the changes of the named journals after these versions, with the current metrics of the
        broker.

        If `epoch` is not the broker's epoch, every journal is read from version 0.
        """
        return await self.ask(node_id, "activity", {"epoch": epoch, **versions})

    async def connections(self, node_id: BrokerId) -> Any:
        return await self.ask(node_id, "connections", {})

    async def close_connection(self, node_id: BrokerId, number: int) -> None:
        """Close a client connection. Raises RESOURCE_NOT_FOUND if the broker has no connection with this number."""
        await self.ask(node_id, "close_connection", {"number": number})

    async def log_lines(self, node_id: BrokerId, limit: int) -> Any:
        """Return the last lines of a broker's log, oldest first."""
        return (await self.ask(node_id, "log_lines", {"limit": limit}))["lines"]

    async def partition_times(self, node_id: BrokerId, topic: str) -> Any:
        """Return sizes and times of the partitions of a topic that the broker leads."""
        return (await self.ask(node_id, "partition_times", {"topic": topic}))["partitions"]

    async def delayed_messages(
        self, node_id: BrokerId, topic: str, partition: int, limit: int, start: Mapping[str, int]
    ) -> Any:
        """Return the number of pending messages of a partition, and the pending messages after `start`."""
        arguments: dict[str, int | str] = {"topic": topic, "partition": partition, "limit": limit, **start}
        return await self.ask(node_id, "delayed_messages", arguments)

    async def delayed_message(self, node_id: BrokerId, topic: str, partition: int, offset: int) -> Any:
        """Return a pending message with its content. Raises RESOURCE_NOT_FOUND if it is not pending."""
        arguments: dict[str, int | str] = {"topic": topic, "partition": partition, "offset": offset}
        return await self.ask(node_id, "delayed_message", arguments)

    async def refusals(self, node_id: BrokerId) -> Any:
        """Return the requests that a broker has refused, and its authorization mode."""
        return await self.ask(node_id, "refusals", {})

    async def drain_progress(self, node_id: BrokerId, topic: str, count: int = 0) -> Any:
        """Return the progress of the partitions being removed that the broker leads, and the groups that it
        coordinates. A `count` other than 0 asks about the partitions that would be removed with that number
        of partitions.
        """
        return await self.ask(node_id, "drain_progress", {"topic": topic, "count": count})

    async def retention_reasons(self, topic: str) -> dict[int, str]:
        """Return the reason why records are kept, by partition, for a topic with `retention.acknowledged`."""
        found: dict[int, str] = {}
        for node_id in await self.broker_ids():
            answer = await self.ask(node_id, "retention_reasons", {"topic": topic})
            found |= {int(partition): reason for partition, reason in answer["reasons"].items()}
        return dict(sorted(found.items()))

    async def authorize(
        self, user: str | None, host: str, checks: Sequence[str], *, is_filter: bool = False
    ) -> list[bool]:
        """Ask a broker whether a user may do something; `user` is None for a client without a user. `checks`
        has operation, resource type and resource name of each decision, one after the other. The broker
        records refusals unless `is_filter`.
        """
        named = {} if user is None else {"user": user}
        arguments: QuestionArguments = {
            **named,
            "host": host,
            "checks": list(checks),
            "is_filter": int(is_filter),
        }
        return list((await self.ask_any("authorize", arguments))["allowed"])

    async def charge_user(self, user: str, received: int, sent: int, seconds: float) -> tuple[float, float]:
        """Charge bytes and processing seconds of a user's requests to its quotas. Returns the seconds until
        the user is within its quota for requests that write, and for requests that read.
        """
        arguments: QuestionArguments = {
            "user": user,
            "received": received,
            "sent": sent,
            "microseconds": round(seconds * 1e6),
        }
        answer = await self.ask_any("charge_user", arguments)
        return answer["write_wait_ms"] / 1000, answer["read_wait_ms"] / 1000

    async def ask_any(self, question: str, arguments: QuestionArguments) -> Any:
        """Ask any broker. The question may be sent twice."""
        return await self._routes.at_any(lambda connection: ask_broker(connection, question, arguments))

    async def ask(self, node_id: BrokerId, question: str, arguments: QuestionArguments) -> Any:
        """Ask one broker."""
        if node_id not in self._routes.brokers:
            await self._routes.read_brokers()
        return await self._routes.at_broker(
            node_id, lambda connection: ask_broker(connection, question, arguments)
        )


async def ask_broker(connection: BrokerConnection, question: str, arguments: QuestionArguments) -> Any:
    """Ask the broker at the other end of a connection."""
    request = InspectRequest(question, msgspec.msgpack.encode(arguments))
    correlation_id = connection.next_correlation_id()
    frame = encode_inspect_request(correlation_id, connection.own_client_id, request)
    async with asyncio.timeout(RESPONSE_SECONDS):
        response = decode_inspect_response(await connection.exchange(correlation_id, frame))
    check_error(response.error_code, response.error_message)
    return msgspec.msgpack.decode(response.answer, strict=False)
