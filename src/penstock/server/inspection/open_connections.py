"""Questions about the client connections of this broker: list them, and close one of them."""

from __future__ import annotations

import asyncio
from heapq import nsmallest
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.server.context import BrokerContext
from penstock.server.inspection.question import Arguments, Question, integer
from penstock.server.security import Operation

MAX_CONNECTIONS = 1_000
CLOSE_SECONDS = 0.05


async def _list(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    now = context.clock.monotonic()
    oldest = nsmallest(MAX_CONNECTIONS, context.connections.items(), key=lambda each: each[1].session.number)
    shown = [
        {
            "number": watched.session.number,
            "client_id": watched.session.client_id or "",
            "software": watched.session.software,
            "principal": str(watched.session.principal),
            "peer": watched.session.peer,
            "is_broker": watched.session.broker_id is not None,
            "age_seconds": now - watched.opened,
            "received_bytes": connection.received_bytes,
            "sent_bytes": connection.sent_bytes,
        }
        for connection, watched in oldest
    ]
    return {"connections": shown, "count": len(context.connections)}


async def _close(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    number = integer(arguments, "number")
    for connection, watched in context.connections.items():
        if watched.session.number == number:
            # Deferred, because the response to this question may go over the same connection.
            asyncio.get_running_loop().call_later(CLOSE_SECONDS, connection.close)
            return {"closed": number}
    raise BrokerError(
        ErrorCode.resource_not_found, f"broker {context.node_id} has no connection with number {number}"
    )


CONNECTIONS = Question("connections", Operation.DESCRIBE, _list)
CLOSE_CONNECTION = Question("close_connection", Operation.ALTER, _close)
