"""Question for the requests that this broker has refused for lack of a right, or would refuse with
`authorization.mode=enforce`.
"""

from __future__ import annotations

from typing import Any

from penstock.server.authorization import mode_of
from penstock.server.context import BrokerContext
from penstock.server.inspection.question import Arguments, Question, integer
from penstock.server.security import Operation

MAX_SHOWN = 5_000


async def _answer(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    limit = min(MAX_SHOWN, max(1, integer(arguments, "limit", MAX_SHOWN)))
    refusals = context.authorization.refusals
    shown = [
        {
            "principal": each.principal,
            "host": each.host,
            "operation": each.operation.name,
            "resource_type": each.kind.name,
            "name": each.name,
            "count": each.count,
            "first_ms": each.first_ms,
            "last_ms": each.last_ms,
        }
        for each in refusals.newest(limit)
    ]
    return {"mode": str(mode_of(context.config)), "total": refusals.total, "refusals": shown}


REFUSALS = Question("refusals", Operation.DESCRIBE, _answer)
