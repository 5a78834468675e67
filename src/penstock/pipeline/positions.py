"""Position of a streaming query: the next offset of each partition, as Spark stores it in the checkpoint of
the query.

A position also contains partitions that are currently not subscribed, so that a topic which is subscribed again
continues where the query stopped reading it. Topics are identified by name and topic id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.pipeline.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class Position:
    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]
    """Topic id of each topic in `offsets`."""
    deleted: frozenset[str] = field(default_factory=frozenset)
    """Deleted topics of the subscription whose loss was accepted (failOnDataLoss=false)."""

    def advanced(
        self, offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, str], deleted: frozenset[str]
    ) -> Position:
        """Position after a batch up to `offsets`. Partitions outside the batch keep their offset, except
        partitions of a topic that was replaced by one with another id.
        """
        replaced = {
            name for name, _ in offsets if self.topic_ids.get(name, topic_ids[name]) != topic_ids[name]
        }
        kept = {
            partition: offset for partition, offset in self.offsets.items() if partition[0] not in replaced
        }
        merged = {**kept, **offsets}
        ids = {**self.topic_ids, **{name: topic_ids[name] for name, _ in offsets}}
        return Position(merged, {name: ids[name] for name, _ in merged if name in ids}, deleted)

    def encode(self) -> dict[str, Any]:
        """JSON for Spark. Equal positions have equal text, from which Spark concludes that there is no new data."""
        by_topic: dict[str, dict[str, int]] = {}
        for (topic, number), offset in sorted(self.offsets.items()):
            by_topic.setdefault(topic, {})[str(number)] = offset
        encoded: dict[str, Any] = {
            "offsets": by_topic,
            "topic_ids": {name: self.topic_ids[name] for name in by_topic if name in self.topic_ids},
        }
        if self.deleted:
            encoded["deleted"] = sorted(self.deleted)
        return encoded

    @classmethod
    def decode(cls, encoded: Mapping[str, Any]) -> Position:
        offsets = {
            (topic, int(number)): offset
            for topic, partitions in encoded["offsets"].items()
            for number, offset in partitions.items()
        }
        return cls(offsets, encoded.get("topic_ids", {}), frozenset(encoded.get("deleted", ())))
