"""Values that all layers share: offsets, epochs, ids, addresses and the name of a partition.

Plain data without behaviour. Any module may import this one; it imports nothing of Penstock.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import dataclass
from typing import NamedTuple, NewType
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


class ShareKey(NamedTuple):
    """Key of a share-partition: the state of one partition in one share group."""

    group_id: str
    topic_id: TopicId
    partition: int

    @property
    def name(self) -> str:
        """Text whose hash selects the partition of `__share_group_state`, as in Kafka."""
        topic_id = urlsafe_b64encode(self.topic_id.bytes).rstrip(b"=").decode()
        return f"{self.group_id}:{topic_id}:{self.partition}"


QUEUE_INITIALIZER = "penstock-queue-initializer"
"""Reserved member id: a ShareGroupHeartbeat with it only creates the missing share states of a queue."""

WILDCARD_HOSTS = frozenset({"", "0.0.0.0", "::", "*"})


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_wildcard(self) -> bool:
        """True if the host means all addresses of the machine. A client cannot connect to such an address."""
        return self.host in WILDCARD_HOSTS
