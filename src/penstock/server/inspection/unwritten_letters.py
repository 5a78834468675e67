"""Question for share-partitions with dead letters that are not written yet, according to the share coordinator shards
on this broker.
"""

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
