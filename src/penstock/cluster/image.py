"""Cluster image: the immutable state of the cluster as one broker knows it, replaced as a whole.

A new image shares all unchanged topics and brokers with the old one. Metadata responses, routing and all
metadata changes are computed from an image. Only `ClusterMetadata` publishes new images.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from penstock.model import (
    NO_LEADER_EPOCH,
    Address,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from penstock.security.acl import AccessControlEntry, ResourcePattern
from penstock.security.quota import QuotaEntity, QuotaKey
from penstock.security.user import User

DELIVERY_DELAY = "delivery.delay"
"""Topic config that is `true` for topics with delayed messages and absent from other topics."""
VIEW_OF = "view.of"
"""Config that makes a topic a view of another topic."""
VIEW_SHARED = "view.shared"
NO_LEADER = BrokerId(-1)
NO_OFFSET = Offset(-1)
FIRST_OFFSET = Offset(0)


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    node_id: BrokerId
    host: str
    port: int
    epoch: BrokerEpoch
    machine_id: str
    rack: str | None = None
    is_stopping: bool = False
    """True if the broker is stopping and asks the controller to elect other leaders."""
    directory_version: int = -1
    """Version of the broker's directory node. A different version in the store means that the broker is
    registering again.
    """
    siblings: tuple[BrokerId, ...] = ()
    """Brokers of the same `penstock broker --processes`, including this broker; empty if the broker runs alone."""
    is_cordoned: bool = False
    """True if the broker is being drained, so that new partitions get no replicas on it."""
    listeners: Mapping[str, Address] = field(default_factory=dict)
    """Advertised addresses by listener name; empty if the broker runs a version with a single listener.
    `host` and `port` repeat one of them: the inter-broker listener of the broker that registers or, in an
    image, of the broker that holds the image.
    """

    def address_for(self, listener: str) -> Address | None:
        """Address for clients that connect to this listener; None if the broker has no listener of this name."""
        if not self.listeners:
            return Address(self.host, self.port)
        return self.listeners.get(listener)

    def seen_from(self, listener: str) -> RegisteredBroker:
        """Copy of the broker with the address of this listener, for connections from another broker."""
        address = self.listeners.get(listener)
        if address is None or (address.host, address.port) == (self.host, self.port):
            return self
        return replace(self, host=address.host, port=address.port)


class PartitionPhase(IntEnum):
    """Phases of a partition that a smaller partition count removes. The highest indexes are removed first."""

    ACTIVE = 0
    DRAINING = 1
    """The partition is being removed. Clients that already know it still write to it; new clients do not see it."""
    SEALING = 2
    """New records are refused. SEALED follows when all records are committed and no transaction is open."""
    SEALED = 3
    """Readable; only transaction markers are appended. The partition is removed when its last record has expired."""
    DROPPING = 4
    """The partition is sealed and is removed without waiting for its retention."""

    @property
    def takes_records(self) -> bool:
        return self <= PartitionPhase.DRAINING


class RemovedPartition(NamedTuple):
    """Final offset and leader epoch of a removed partition. A new partition with its index begins above both."""

    log_end_offset: Offset
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class PartitionState:
    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    partition_epoch: int
    """Version of the partition's node. Every write of the partition is conditional on it."""
    adding_replicas: tuple[BrokerId, ...] = ()
    """Replicas that a reassignment in progress has added. A replica that is not in `target_replicas` is
    removed when the reassignment completes.
    """
    target_replicas: tuple[BrokerId, ...] = ()
    """Replicas at the end of the reassignment; empty if none is in progress."""
    last_resort: tuple[BrokerId, ...] = ()
    """Replicas outside the in-sync set that may lack committed records. One of them is elected if all
    complete replicas are lost.
    """
    eligible: tuple[BrokerId, ...] = ()
    """Eligible leaders (KIP-966): replicas outside the in-sync set that have every committed record. The
    leader commits nothing while this or `last_resort` is not empty.
    """
    committed: Offset = NO_OFFSET
    """Offset below which records were committed when the eligible leaders were recorded. A replica with a
    shorter log has lost records. -1 if unknown.
    """
    sole_end: Offset = NO_OFFSET
    """Log end offset of the only in-sync replica when the eligible leaders were recorded. If its log is
    shorter later, it has lost records. -1 if unknown.
    """
    unclean_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """Leader epoch of the last unclean election, which may have given up committed records."""
    phase: PartitionPhase = PartitionPhase.ACTIVE
    phase_since_ms: int = 0
    """Time at which the phase began, in milliseconds since the epoch; 0 for a partition that was always active."""
    waits_for_groups: bool = True
    """True if the partition is sealed only after every group with committed offsets in it has read all its records."""
    first_offset: Offset = FIRST_OFFSET
    """First offset of the partition's log. It is above 0 if an earlier partition with this index was removed."""

    @property
    def has_eligible(self) -> bool:
        """True if there are eligible leaders or last resorts. The leader commits nothing while this is true."""
        return bool(self.eligible or self.last_resort)

    @property
    def is_reassigning(self) -> bool:
        return bool(self.target_replicas)

    @property
    def removing_replicas(self) -> tuple[BrokerId, ...]:
        """Replicas that the reassignment in progress removes at its end."""
        if not self.is_reassigning:
            return ()
        return tuple(replica for replica in self.replicas if replica not in self.target_replicas)

    @property
    def final_replicas(self) -> tuple[BrokerId, ...]:
        """Replicas after the reassignment in progress, or the current ones if there is none."""
        return self.target_replicas or self.replicas


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    id: TopicId
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str]
    """Configs that are set on the topic itself, without defaults."""
    version: int
    """Version of the topic's node."""
    is_unfinished: bool = False
    """True if an addition of partitions was begun but not completed. The next change of the topic undoes it first."""
    removed: tuple[RemovedPartition, ...] = ()
    """Removed partitions, beginning with index `len(partitions)`."""

    @property
    def is_shrinking(self) -> bool:
        """True if partitions of the topic are being removed, which are always those with the highest indexes."""
        return bool(self.partitions) and self.partitions[-1].phase is not PartitionPhase.ACTIVE

    def has_removed(self, index: int) -> bool:
        """True if a partition with this index was removed and not created again."""
        return 0 <= index - len(self.partitions) < len(self.removed)

    @property
    def active_count(self) -> int:
        """Number of partitions that new clients see."""
        count = len(self.partitions)
        while count and self.partitions[count - 1].phase is not PartitionPhase.ACTIVE:
            count -= 1
        return count

    @property
    def is_delayed(self) -> bool:
        """True if the topic has delayed messages."""
        return self.configs.get(DELIVERY_DELAY) == "true"

    @property
    def view_of(self) -> str | None:
        """Name of the source topic if this topic is a view; otherwise None. A view has no partitions of its own."""
        return self.configs.get(VIEW_OF)

    @property
    def is_shared_view(self) -> bool:
        """True for a view that the cluster removes when it is no longer used."""
        return self.view_of is not None and self.configs.get(VIEW_SHARED, "").lower() == "true"

    @property
    def is_projected(self) -> bool:
        """True if readers may not see every record of the log that they read (ARCHITECTURE.md, Projections)."""
        return self.view_of is not None or self.is_delayed


@dataclass(frozen=True, slots=True)
class StoredConfigs:
    """Dynamic configs of a broker, of all brokers or of a group, with the version of their node (-1 if it
    does not exist).
    """

    values: Mapping[str, str] = field(default_factory=dict)
    version: int = -1


@dataclass(frozen=True, slots=True)
class StoredAcls:
    """Access control list of a resource pattern, with the version of its node (-1 if it does not exist)."""

    entries: frozenset[AccessControlEntry] = frozenset()
    version: int = -1


@dataclass(frozen=True, slots=True)
class StoredQuotas:
    """Quotas of an entity, with the version of their node (-1 if it does not exist)."""

    values: Mapping[QuotaKey, float] = field(default_factory=dict)
    version: int = -1


@dataclass(frozen=True, slots=True)
class ClusterImage:
    cluster_id: str
    secret: str = field(default="", repr=False)
    """Secret with which brokers authenticate to each other, unless one is configured."""
    controller_id: BrokerId = NO_LEADER
    brokers: Mapping[BrokerId, RegisteredBroker] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[TopicId, str] = field(default_factory=dict)
    broker_configs: Mapping[BrokerId | None, StoredConfigs] = field(default_factory=dict)
    """Dynamic broker configs by broker id; None is the cluster-wide default."""
    group_configs: Mapping[str, StoredConfigs] = field(default_factory=dict)
    """Configs of consumer groups, for groups that have any."""
    users: Mapping[str, User] = field(default_factory=dict)
    acls: Mapping[ResourcePattern, StoredAcls] = field(default_factory=dict)
    quotas: Mapping[QuotaEntity, StoredQuotas] = field(default_factory=dict)
    views: Mapping[str, str] = field(default_factory=dict)
    """Name of the source topic of each view, by the name of the view."""
    projected: frozenset[str] = frozenset()
    """Names of the topics whose readers may not see every record of the log that they read."""

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

    def shown(self, topic: TopicImage) -> TopicImage:
        """The topic as clients see it: a view has the partitions of its source."""
        if topic.view_of is None:
            return topic
        source = self.topics.get(topic.view_of, topic)
        return replace(topic, partitions=source.partitions, removed=source.removed)

    def views_of(self, name: str) -> list[str]:
        """Names of the views of a topic, in order."""
        return sorted(view for view, source in self.views.items() if source == name)

    @property
    def known_brokers(self) -> frozenset[BrokerId]:
        """Registered brokers, and offline brokers that have replicas."""
        partitions = (partition for topic in self.topics.values() for partition in topic.partitions)
        return frozenset(self.brokers).union(*(partition.replicas for partition in partitions))

    def count_machines(self, brokers: Iterable[BrokerId]) -> int:
        """Number of machines that these brokers run on: brokers of one `penstock broker --processes` count once."""
        first = {each: min(broker.siblings) for broker in self.brokers.values() for each in broker.siblings}
        return len({first.get(broker_id, broker_id) for broker_id in brokers})

    def is_stopping(self, broker_id: BrokerId) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_stopping

    def brokers_at(self, listener: str) -> list[tuple[RegisteredBroker, Address]]:
        """Brokers that have this listener, each with its address there."""
        addresses = ((broker, broker.address_for(listener)) for broker in self.brokers.values())
        return [(broker, address) for broker, address in addresses if address is not None]

    def seen_from(self, listener: str) -> ClusterImage:
        """Image for a broker that connects to other brokers through this listener: `host` and `port` of each
        broker are its address at the listener, if it has that listener.
        """
        brokers = {broker_id: broker.seen_from(listener) for broker_id, broker in self.brokers.items()}
        return self if brokers == self.brokers else replace(self, brokers=brokers)

    def rack_of(self, broker_id: BrokerId) -> str | None:
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.rack

    def configs_of(self, broker: BrokerId | None) -> StoredConfigs:
        return self.broker_configs.get(broker, StoredConfigs())

    def broker_overrides(self, broker: BrokerId) -> dict[str, str]:
        """Dynamic configs of a broker: cluster-wide configs, overridden by the broker's own."""
        return {**self.configs_of(None).values, **self.configs_of(broker).values}

    def group_overrides(self) -> dict[str, Mapping[str, str]]:
        return {group_id: configs.values for group_id, configs in self.group_configs.items()}

    def replica_count(self, broker: BrokerId) -> int:
        return sum(
            broker in partition.replicas for topic in self.topics.values() for partition in topic.partitions
        )

    def with_members(self, brokers: Iterable[RegisteredBroker], controller_id: BrokerId) -> ClusterImage:
        """Copy of the image with exactly these brokers."""
        return replace(
            self, brokers={broker.node_id: broker for broker in brokers}, controller_id=controller_id
        )

    def with_topics(self, topics: Iterable[TopicImage]) -> ClusterImage:
        """Copy of the image with these topics added or replaced."""
        changed = list(topics)
        return replace(
            self,
            topics={**self.topics, **{topic.name: topic for topic in changed}},
            topic_names={**self.topic_names, **{topic.id: topic.name for topic in changed}},
            views={**self.views, **{topic.name: topic.view_of for topic in changed if topic.view_of}},
            projected=self.projected.difference(
                topic.name for topic in changed if not topic.is_projected
            ).union(topic.name for topic in changed if topic.is_projected),
        )

    def without_topics(self, names: Iterable[str]) -> ClusterImage:
        topics, topic_names = dict(self.topics), dict(self.topic_names)
        views, removed = dict(self.views), set(names)
        for name in removed:
            del topic_names[topics.pop(name).id]
            views.pop(name, None)
        projected = self.projected - removed
        return replace(self, topics=topics, topic_names=topic_names, views=views, projected=projected)

    def with_configs(self, broker: BrokerId | None, configs: StoredConfigs) -> ClusterImage:
        return replace(self, broker_configs={**self.broker_configs, broker: configs})

    def with_group_configs(self, group_id: str, configs: StoredConfigs) -> ClusterImage:
        """Copy of the image with these configs of a group. Empty configs remove the group's entry."""
        group_configs = {**self.group_configs, group_id: configs}
        if not configs.values:
            del group_configs[group_id]
        return replace(self, group_configs=group_configs)

    def with_users(self, changed: Mapping[str, User]) -> ClusterImage:
        """Copy of the image with these users. A user without a node (version -1) is removed."""
        users = {name: user for name, user in {**self.users, **changed}.items() if user.version >= 0}
        return replace(self, users=users)

    def with_acls(self, changed: Mapping[ResourcePattern, StoredAcls]) -> ClusterImage:
        """Copy of the image with these access control lists. A list without a node (version -1) is removed."""
        acls = {**self.acls, **changed}
        for resource, stored in changed.items():
            if stored.version < 0:
                del acls[resource]
        return replace(self, acls=acls)

    def with_quotas(self, changed: Mapping[QuotaEntity, StoredQuotas]) -> ClusterImage:
        """Copy of the image with these quotas. Quotas without a node (version -1) are removed."""
        quotas = {entity: each for entity, each in {**self.quotas, **changed}.items() if each.version >= 0}
        return replace(self, quotas=quotas)


@dataclass(frozen=True, slots=True)
class ImageChange:
    """Event that a subscriber receives: the images before and after a change, and the names of the changed topics."""

    before: ClusterImage
    after: ClusterImage
    topics: frozenset[str] = frozenset()
