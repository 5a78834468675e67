"""Question for share-partitions whose dead letters are not written, as the coordinators of this broker know them."""

from __future__ import annotations

from typing import Any

from penstock.server.context import BrokerContext
from penstock.server.inspection.question import Arguments, Question
from penstock.server.queue_upkeep.unused_queues import QUESTION
from penstock.server.security import Operation


async def _report(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    assert context.queue_upkeep is not None, "the broker has started"
    return {"keys": context.queue_upkeep.unused.report()}


UNWRITTEN_LETTERS = Question(QUESTION, Operation.CLUSTER_ACTION, _report)
