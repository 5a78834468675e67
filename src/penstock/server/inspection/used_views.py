"""Question for used shared views: read on this broker, or by groups that this broker coordinates."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from penstock.groups.share.group import ShareGroup
from penstock.model import TopicId
from penstock.server.context import BrokerContext
from penstock.server.inspection.question import Arguments, Question
from penstock.server.security import Operation

READ_SECONDS = 120.0
"""A view counts as read for this many seconds after its last fetch."""
_OFFSETS_PER_TURN = 5_000


async def find_used_views(context: BrokerContext) -> dict[str, Any]:
    """Names of the used views, and the number of partitions of `__consumer_offsets` whose groups were checked."""
    shared = {
        name: topic.id for name in context.image.views if (topic := context.image.topics[name]).is_shared_view
    }
    shards = context.groups.shards
    used = _read_here(context, shared) | await _committed(context, shared)
    return {"views": sorted(used), "shards": len(shards)}


def _read_here(context: BrokerContext, shared: Mapping[str, TopicId]) -> set[str]:
    return {
        name
        for replica in context.replicas
        for name, topic_id in shared.items()
        if (projected := replica.projections.find(topic_id)) is not None
        and projected.is_read_within(READ_SECONDS)
    }


async def _committed(context: BrokerContext, shared: Mapping[str, TopicId]) -> set[str]:
    found: set[str] = set()
    for shard in context.groups.shards:
        for count, (_, topic, _, _) in enumerate(list(shard.offsets.all()) if shared else ()):
            if topic in shared:
                found.add(topic)
            if count % _OFFSETS_PER_TURN == _OFFSETS_PER_TURN - 1:
                await asyncio.sleep(0)
        for group in tuple(shard.groups.values()) if shared else ():
            if not group.is_empty:
                found |= {name for name in shared if group.reads(name)}
            if isinstance(group, ShareGroup):
                states = group.remembered.topics.initialized
                found |= {name for name, topic_id in shared.items() if topic_id in states}
    return found


async def _answer(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    return await find_used_views(context)


USED_VIEWS = Question("used_views", Operation.DESCRIBE, _answer)
