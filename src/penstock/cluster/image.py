"""The cluster as one broker knows it at one moment: immutable, replaced as a whole, shared without copying.

An update makes a new image that shares every topic and broker it did not touch. Answers to Metadata, routing
and every decision are made from an image; only `ClusterMetadata` makes new ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.model import (
    NO_LEADER_EPOCH,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)

NO_LEADER = BrokerId(-1)
NO_OFFSET = Offset(-1)


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    node_id: BrokerId
    host: str
    port: int
    epoch: BrokerEpoch
    machine_id: str
    rack: str | None = None
    is_stopping: bool = False
    """It asks the controller to let others lead."""
    directory_version: int = -1
    """Of the node of its data directory: another one means that it has registered again, or is about to."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    partition_epoch: int
    """The version of its node in the store: every change of it is conditional on this."""
    adding_replicas: tuple[BrokerId, ...] = ()
    """Those of the replicas that were not there before the move; one that is not in the target goes when it ends."""
    target_replicas: tuple[BrokerId, ...] = ()
    """The replicas at the end of a move; empty where none is under way."""
    last_resort: tuple[BrokerId, ...] = ()
    """Replicas that left the in-sync set, or the eligible leaders, because they may lack committed records. One of
    them leads when all replicas that had everything are lost."""
    eligible: tuple[BrokerId, ...] = ()
    """Eligible leaders (KIP-966): replicas outside of the in-sync set that have every committed record. A leader
    commits nothing while any are recorded here or in `last_resort`."""
    committed: Offset = NO_OFFSET
    """Records below were committed when the eligible leaders were recorded: a replica that ends before it has lost
    some. -1 where it is not known."""
    sole_end: Offset = NO_OFFSET
    """Log end of the only in-sync replica when eligible leaders were recorded: with a shorter log it has lost records.
    -1 where it is not known."""
    unclean_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """Leader epoch of the last election that may have given up committed records."""

    @property
    def has_eligible(self) -> bool:
        """Whether replicas outside of the in-sync set may have to lead; until they need not, nothing is committed."""
        return bool(self.eligible or self.last_resort)

    @property
    def is_reassigning(self) -> bool:
        return bool(self.target_replicas)

    @property
    def removing_replicas(self) -> tuple[BrokerId, ...]:
        """Those that go when a move has come to its end."""
        if not self.is_reassigning:
            return ()
        return tuple(replica for replica in self.replicas if replica not in self.target_replicas)

    @property
    def final_replicas(self) -> tuple[BrokerId, ...]:
        """The replicas as they shall be once nothing moves."""
        return self.target_replicas or self.replicas


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    id: TopicId
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str]
    """What was set on the topic itself."""
    version: int
    """The version of its node in the store."""
    is_unfinished: bool = False
    """A growth was begun: whoever changes the topic clears that away first."""


@dataclass(frozen=True, slots=True)
class StoredConfigs:
    """Settings changed at run time, of a broker, of all, or of a group; the version of their node (-1: none yet)."""

    values: Mapping[str, str] = field(default_factory=dict)
    version: int = -1


@dataclass(frozen=True, slots=True)
class ClusterImage:
    cluster_id: str
    secret: str = field(default="", repr=False)
    """By which its brokers prove to each other who they are, unless they were given one."""
    controller_id: BrokerId = NO_LEADER
    brokers: Mapping[BrokerId, RegisteredBroker] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[TopicId, str] = field(default_factory=dict)
    broker_configs: Mapping[BrokerId | None, StoredConfigs] = field(default_factory=dict)
    """By broker; None is the cluster-wide default."""
    group_configs: Mapping[str, StoredConfigs] = field(default_factory=dict)
    """Of consumer groups that have settings of their own."""

    def topic(self, name: str) -> TopicImage | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: TopicId) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, name: TopicPartition) -> PartitionState | None:
        topic = self.topics.get(name.topic)
        if topic is None or not 0 <= name.partition < len(topic.partitions):
            return None
        return topic.partitions[name.partition]

    @property
    def known_brokers(self) -> frozenset[BrokerId]:
        """Those that are there, and those that are away but hold a replica."""
        partitions = (partition for topic in self.topics.values() for partition in topic.partitions)
        return frozenset(self.brokers).union(*(partition.replicas for partition in partitions))

    def is_stopping(self, broker_id: BrokerId) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_stopping

    def rack_of(self, broker_id: BrokerId) -> str | None:
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.rack

    def configs_of(self, broker: BrokerId | None) -> StoredConfigs:
        return self.broker_configs.get(broker, StoredConfigs())

    def broker_overrides(self, broker: BrokerId) -> dict[str, str]:
        """What run-time changes say for a broker: the cluster-wide default under its own."""
        return {**self.configs_of(None).values, **self.configs_of(broker).values}

    def group_overrides(self) -> dict[str, Mapping[str, str]]:
        return {group_id: configs.values for group_id, configs in self.group_configs.items()}

    def replica_count(self, broker: BrokerId) -> int:
        return sum(
            broker in partition.replicas for topic in self.topics.values() for partition in topic.partitions
        )

    def with_members(self, brokers: Iterable[RegisteredBroker], controller_id: BrokerId) -> ClusterImage:
        """With these brokers and no others."""
        return replace(
            self, brokers={broker.node_id: broker for broker in brokers}, controller_id=controller_id
        )

    def with_topics(self, topics: Iterable[TopicImage]) -> ClusterImage:
        """With these topics new or changed."""
        changed = list(topics)
        return replace(
            self,
            topics={**self.topics, **{topic.name: topic for topic in changed}},
            topic_names={**self.topic_names, **{topic.id: topic.name for topic in changed}},
        )

    def without_topics(self, names: Iterable[str]) -> ClusterImage:
        topics, topic_names = dict(self.topics), dict(self.topic_names)
        for name in names:
            del topic_names[topics.pop(name).id]
        return replace(self, topics=topics, topic_names=topic_names)

    def with_configs(self, broker: BrokerId | None, configs: StoredConfigs) -> ClusterImage:
        return replace(self, broker_configs={**self.broker_configs, broker: configs})

    def with_group_configs(self, group_id: str, configs: StoredConfigs) -> ClusterImage:
        """Without any, where they are empty."""
        group_configs = {**self.group_configs, group_id: configs}
        if not configs.values:
            del group_configs[group_id]
        return replace(self, group_configs=group_configs)


@dataclass(frozen=True, slots=True)
class ImageChange:
    """What a subscriber is told: the images on both sides of a change, and the names of the topics in it."""

    before: ClusterImage
    after: ClusterImage
    topics: frozenset[str] = frozenset()
