"""Question for the topics that a share group reads, as far as its coordinator is on this broker."""

from __future__ import annotations

from typing import Any

from penstock.server.context import BrokerContext
from penstock.server.inspection.question import Arguments, Question, text
from penstock.server.security import Operation
from penstock.server.share_readers import QUESTION, own_topics


async def _report(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    return {"topics": own_topics(context, text(arguments, "group"))}


SHARE_TOPICS = Question(QUESTION, Operation.CLUSTER_ACTION, _report)
