"""List of deleted topics, for brokers that were offline at the deletion and still have logs of the topic.

A broker deletes a log only if the topic id is in this list or the broker saw the deletion; a topic that is
merely unknown is no reason. The write that deletes a topic also adds its entry. The last few thousand entries
are kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cluster import znodes
from penstock.cluster.change_list import ChangeList
from penstock.cluster.coordination import CoordinationStore, Create, Delete, Operation
from penstock.model import TopicId

MAX_DELETIONS = 2_000
TRIMMED_AT_ONCE = 200


def entry_of(topic_id: TopicId) -> Operation:
    return Create(znodes.deleted_topic_prefix(topic_id), sequential=True)


async def deleted_topics(store: CoordinationStore) -> frozenset[TopicId]:
    return frozenset(map(znodes.deleted_topic, await store.children(znodes.DELETED_TOPICS)))


async def trim(store: CoordinationStore, change_list: ChangeList) -> None:
    """Remove the oldest entries, up to `MAX_DELETIONS` in one write, once enough of them have accumulated."""
    names = await store.children(znodes.DELETED_TOPICS)
    if len(names) >= MAX_DELETIONS + TRIMMED_AT_ONCE:
        await change_list.write_unlisted(_removals(sorted(names, key=znodes.deletion_number)))


def _removals(names: Sequence[str]) -> list[Operation]:
    old = names[: len(names) - MAX_DELETIONS]
    return [Delete(f"{znodes.DELETED_TOPICS}/{name}") for name in old[:MAX_DELETIONS]]
