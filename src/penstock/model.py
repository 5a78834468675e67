"""Values that all layers share: offsets, epochs, ids and the name of a partition.

Plain data without behaviour. Any module may import this one; it imports nothing of Penstock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType
from uuid import UUID

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
BrokerId = NewType("BrokerId", int)
BrokerEpoch = NewType("BrokerEpoch", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
TopicId = NewType("TopicId", UUID)

NO_PRODUCER_ID = ProducerId(-1)
NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_TOPIC_ID = TopicId(UUID(int=0))


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
