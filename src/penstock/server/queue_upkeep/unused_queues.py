"""Loading of share-partitions that have work although no consumer uses them: dead letters to write, or records that
expire.

Share-partitions of queues that this broker leads stay in memory. Share-partitions of other share groups are loaded if
the share coordinator knows dead letters of them that are not written. All brokers are asked for these, because the
coordinator may be on another broker. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

from penstock.cluster.image import ClusterImage
from penstock.cluster.internal_topics import SHARE_STATE_TOPIC
from penstock.config import SHARE_QUEUE_TOPIC
from penstock.errors import BrokerError
from penstock.model import ShareKey, TopicId
from penstock.server.context import BrokerContext
from penstock.server.projection_kinds import projection_of

QUESTION: Final = "unwritten_dead_letters"
_LOADS_PER_ROUND: Final = 200
_ROUNDS_PER_QUESTION: Final = 12


class UnusedQueues:
    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._rounds = 0

    async def run(self) -> None:
        """Load share-partitions that have work, at most `_LOADS_PER_ROUND` in each round."""
        image = self._context.image
        if SHARE_STATE_TOPIC not in image.topics:
            return
        wanted = list(_queue_keys(image))
        if self._rounds % _ROUNDS_PER_QUESTION == 0:
            wanted += await self._unwritten()
        self._rounds += 1
        left = _LOADS_PER_ROUND
        for key in wanted:
            if left <= 0:
                return
            if self._context.share.partitions.find(key) is None and self._load(key):
                left -= 1

    def report(self) -> list[list[Any]]:
        """Share-partitions with dead letters that are not written, according to the share coordinator shards on this
        broker.
        """
        return [
            [key.group_id, str(key.topic_id), key.partition]
            for shard in self._context.share.coordinator.shards
            for key in shard.unwritten()
        ]

    async def _unwritten(self) -> list[ShareKey]:
        assert self._context.draining is not None, "the broker has started"
        answers = [{"keys": self.report()}, *await self._context.draining.ask_others(QUESTION)]
        found = []
        for answer in answers:
            try:
                found += [
                    ShareKey(group, TopicId(UUID(each)), index) for group, each, index in answer["keys"]
                ]
            except (TypeError, ValueError, KeyError):
                continue  # no answer, or the answer of a broker of another version; a later round asks again
        return found

    def _load(self, key: ShareKey) -> bool:
        """Load a share-partition. Returns False if this broker does not lead it."""
        image = self._context.image
        topic = image.topic_by_id(key.topic_id)
        if topic is None:
            return False
        try:
            replica = self._context.replicas.get(topic.view_of or topic.name, key.partition)
        except BrokerError:
            return False
        self._context.share.partitions.get(key, replica, projection_of(image, topic.name))
        return True


def _queue_keys(image: ClusterImage) -> Iterator[ShareKey]:
    """Keys of the share-partitions of all queues."""
    for group, configs in image.group_configs.items():
        topic = image.topic(configs.values.get(SHARE_QUEUE_TOPIC.name, ""))
        source = None if topic is None else image.topic(topic.view_of or topic.name)
        if topic is not None and source is not None:
            for partition in range(len(source.partitions)):
                yield ShareKey(group, topic.id, partition)
