"""Kafka connections of clients and brokers to all brokers. The id of a connection has the broker id and a number."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.inspection import InspectionCalls
from penstock.model import BrokerId


async def list_connections(inspection: InspectionCalls) -> tuple[list[dict[str, Any]], int]:
    """Return the connections, grouped by broker, the oldest first, and their total number. A broker lists at
    most 1,000.
    """
    ids = await inspection.broker_ids()
    found = await asyncio.gather(*(_of_broker(inspection, node_id) for node_id in ids))
    return [each for of_broker, _ in found for each in of_broker], sum(count for _, count in found)


async def close_connection(inspection: InspectionCalls, connection: str) -> None:
    """Close a connection. Raises BROKER_ID_NOT_REGISTERED or RESOURCE_NOT_FOUND if it does not exist,
    INVALID_REQUEST for a text that is not a connection id.
    """
    broker, _, number = connection.partition("-")
    if not (broker.isdecimal() and number.isdecimal()):
        raise BrokerError(ErrorCode.invalid_request, f"{connection[:40]!r} is not the id of a connection")
    if int(broker) not in await inspection.broker_ids():
        raise BrokerError(ErrorCode.broker_id_not_registered, f"there is no broker {broker}")
    await inspection.close_connection(BrokerId(int(broker)), int(number))


async def _of_broker(inspection: InspectionCalls, node_id: BrokerId) -> tuple[list[dict[str, Any]], int]:
    try:
        answer = await inspection.connections(node_id)
    except OSError:
        return [], 0  # The broker has just left the cluster.
    shown = [
        {
            "id": f"{node_id}-{each['number']}",
            "broker": node_id,
            "client_id": each["client_id"],
            "software": each["software"],
            "principal": each["principal"],
            "address": each["peer"],
            "is_broker": each["is_broker"],
            "age_seconds": round(each["age_seconds"], 1),
            "received_bytes": each["received_bytes"],
            "sent_bytes": each["sent_bytes"],
        }
        for each in answer["connections"]
    ]
    return shown, answer["count"]
