"""Questions about topics with `retention.acknowledged`: positions of groups, and reasons why records are kept."""

from __future__ import annotations

from typing import Any

from penstock.cluster.metadata_change import existing_topic
from penstock.server.acknowledged.retention import QUESTION
from penstock.server.context import BrokerContext
from penstock.server.inspection.question import Arguments, Question, text
from penstock.server.security import Operation


async def _report(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    assert context.acknowledged is not None, "the broker has started"
    return await context.acknowledged.report()


async def _show(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    """Reasons why records are kept, by partition, for partitions that this broker leads."""
    topic = existing_topic(context.image, text(arguments, "topic"))
    assert context.acknowledged is not None, "the broker has started"
    return {
        "reasons": {
            name.partition: verdict.reason
            for name, verdict in context.acknowledged.verdicts.items()
            if name.topic == topic.name and verdict.reason
        }
    }


SETTLED_POSITIONS = Question(QUESTION, Operation.CLUSTER_ACTION, _report)
RETENTION_REASONS = Question("retention_reasons", Operation.DESCRIBE, _show, is_about_topic=True)
