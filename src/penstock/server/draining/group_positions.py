"""Positions of groups in partitions that are being removed: committed offsets, and start offsets of share groups."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

from penstock.cluster.image import ClusterImage
from penstock.cluster.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from penstock.model import TopicPartition
from penstock.server.context import BrokerContext
from penstock.server.draining.next_phase import GroupPosition

Shards = dict[str, dict[int, int]]
"""Leader epoch of each coordinator shard that reported, by internal topic and partition."""


@dataclass(slots=True)
class GroupPositions:
    found: dict[TopicPartition, list[GroupPosition]] = field(default_factory=dict)
    shards: Shards = field(default_factory=dict)

    def add(self, name: TopicPartition, position: GroupPosition) -> None:
        self.found.setdefault(name, []).append(position)

    def merge(self, other: GroupPositions) -> None:
        for name, positions in other.found.items():
            self.found.setdefault(name, []).extend(positions)
        for topic, epochs in other.shards.items():
            self.shards.setdefault(topic, {}).update(epochs)

    def is_complete(self, image: ClusterImage) -> bool:
        """True if every coordinator shard has reported in its current leader epoch, so that no group is missing."""
        return all(
            self.shards.get(name, {}).get(index) == state.leader_epoch
            for name in (OFFSETS_TOPIC, SHARE_STATE_TOPIC)
            if name in image.topics
            for index, state in enumerate(image.topics[name].partitions)
        )


def collect(
    context: BrokerContext, positions: GroupPositions, wanted: Mapping[str, int] | None = None
) -> Generator[None, None, None]:
    """Add the positions of the groups whose coordinator is on this broker, in steps.

    `wanted` maps each topic to its first partition that counts. The default is the partitions that are being removed,
    of all shrinking topics.
    """
    image = context.image
    if wanted is None:
        wanted = {topic.name: topic.active_count for topic in image.topics.values() if topic.is_shrinking}
    sources = {each: name for name in wanted for each in (name, *image.views_of(name))}
    for shard in context.groups.shards:
        for group_id, topic, index, value in shard.offsets.all():
            if topic in sources:
                name = TopicPartition(sources[topic], index)
                if name.partition >= wanted[name.topic]:
                    positions.add(name, GroupPosition(group_id, value.offset))
        positions.shards.setdefault(OFFSETS_TOPIC, {})[shard.partition] = shard.leader_epoch
        yield
    for share_shard in context.share.coordinator.shards:
        for key, start_offset in share_shard.start_offsets():
            topic_name = image.topic_names.get(key.topic_id, "")
            if topic_name in sources:
                name = TopicPartition(sources[topic_name], key.partition)
                if name.partition >= wanted[name.topic]:
                    positions.add(name, GroupPosition(key.group_id, start_offset))
        positions.shards.setdefault(SHARE_STATE_TOPIC, {})[share_shard.partition] = share_shard.leader_epoch
        yield
