"""Question for the last lines of this broker's log."""

from __future__ import annotations

from typing import Any

from penstock.server.context import BrokerContext
from penstock.server.inspection.question import Arguments, Question, integer
from penstock.server.security import Operation


async def _answer(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    limit = max(1, integer(arguments, "limit", 200))
    return {"lines": list(context.recent_lines)[-limit:]}


LOG_LINES = Question("log_lines", Operation.DESCRIBE, _answer)
