"""Positions of groups in topics with `retention.acknowledged`, as the coordinators on a broker know them."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from penstock.cluster.image import ClusterImage
from penstock.cluster.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from penstock.groups.shard import GroupShard
from penstock.groups.share.group import ShareGroup
from penstock.model import TopicPartition
from penstock.server.acknowledged.deciding import UNKNOWN
from penstock.server.context import BrokerContext
from penstock.server.draining.group_positions import GroupPositions
from penstock.server.draining.next_phase import GroupPosition

RETENTION_ACKNOWLEDGED = "retention.acknowledged"

Seen = dict[tuple[str, str], set[int]]
"""Partitions in which a group has a position, by group and topic."""


def sources(image: ClusterImage) -> dict[str, str]:
    """Topics with `retention.acknowledged` and their views, each mapped to the topic that stores the records."""
    chosen = [
        name
        for name, topic in image.topics.items()
        if topic.configs.get(RETENTION_ACKNOWLEDGED, "").lower() == "true"
    ]
    return {each: name for name in chosen for each in (name, *image.views_of(name))}


def collect(context: BrokerContext, positions: GroupPositions) -> Generator[None, None, None]:
    """Add the positions of the groups whose coordinator is on this broker, in steps. A reading group without a position
    in a partition gets UNKNOWN there.
    """
    image = context.image
    chosen = sources(image)
    for shard in context.groups.shards:
        _collect_offsets(image, chosen, shard, positions)
        positions.shards.setdefault(OFFSETS_TOPIC, {})[shard.partition] = shard.leader_epoch
        yield
    for states in context.share.coordinator.shards:
        for key, start_offset in states.all_start_offsets():
            topic = image.topic_names.get(key.topic_id, "")
            if topic in chosen:
                name = TopicPartition(chosen[topic], key.partition)
                positions.add(name, GroupPosition(key.group_id, start_offset))
        positions.shards.setdefault(SHARE_STATE_TOPIC, {})[states.partition] = states.leader_epoch
        yield


def _collect_offsets(
    image: ClusterImage, chosen: Mapping[str, str], shard: GroupShard, positions: GroupPositions
) -> None:
    seen: Seen = {}
    for group_id, topic, index, value in shard.offsets.all():
        if topic in chosen:
            seen.setdefault((group_id, topic), set()).add(index)
            positions.add(TopicPartition(chosen[topic], index), GroupPosition(group_id, value.offset))
    for group_id, group in shard.groups.items():
        for topic in chosen:
            if isinstance(group, ShareGroup):
                # The share coordinator has the positions; a partition without a share state has no position.
                states = group.remembered.topics.initialized.get(image.topics[topic].id)
                is_reader = states is not None or (not group.is_empty and group.reads(topic))
                known = set() if states is None else set(states.partitions)
            else:
                is_reader, known = not group.is_empty and group.reads(topic), set()
            if is_reader:
                seen.setdefault((group_id, topic), set()).update(known)
    for (group_id, topic), known in seen.items():
        source = chosen[topic]
        for index in range(len(image.topics[source].partitions)):
            if index not in known:
                positions.add(TopicPartition(source, index), GroupPosition(group_id, UNKNOWN))


def as_report(positions: GroupPositions) -> dict[str, Any]:
    """The positions as values for JSON."""
    return {
        "groups": [[name.topic, name.partition, list(found)] for name, found in positions.found.items()],
        "shards": positions.shards,
    }


def read_report(report: Any) -> GroupPositions:
    """Positions in a report of another broker. Raises ValueError, TypeError or KeyError if the report is malformed."""
    return GroupPositions(
        {
            TopicPartition(topic, index): [GroupPosition(*each) for each in found]
            for topic, index, found in report["groups"]
        },
        {topic: dict(epochs) for topic, epochs in report["shards"].items()},
    )
