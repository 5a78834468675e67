"""Reader of the coordination store: builds the cluster image with few pipelined reads. Also encodes parts of
the image as nodes.

The reads are not one snapshot. A change between two reads has an entry in the change list, so its nodes are
read again. The nodes of a single topic always belong together.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.cluster import znodes
from penstock.cluster.acl_nodes import decode_acls, resource_of
from penstock.cluster.coordination import CoordinationStore, Node
from penstock.cluster.image import (
    NO_LEADER,
    VIEW_OF,
    ClusterImage,
    PartitionPhase,
    PartitionState,
    RegisteredBroker,
    RemovedPartition,
    StoredAcls,
    StoredConfigs,
    StoredQuotas,
    TopicImage,
)
from penstock.cluster.quota_nodes import decode_quotas, entity_of
from penstock.cluster.user_nodes import decode_user
from penstock.errors import StorageError
from penstock.model import Address, BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId
from penstock.security.acl import ResourcePattern
from penstock.security.quota import QuotaEntity
from penstock.security.user import User


@dataclass(frozen=True, slots=True)
class UnfinishedChange:
    """Topic with partition nodes that are not visible, because a large change is in progress or was
    abandoned.
    """

    topic: str
    node: znodes.TopicNode
    version: int
    partitions: Sequence[int]
    """Indexes of the existing partition nodes that are not visible."""


async def load_image(store: CoordinationStore) -> ClusterImage:
    cluster = znodes.decode((await store.get(znodes.CLUSTER)).data, znodes.ClusterNode)
    image = ClusterImage(cluster.cluster_id, cluster.secret)
    image = image.with_members(*await read_members(store))
    for broker, configs in (await read_broker_configs(store)).items():
        image = image.with_configs(broker, configs)
    groups = [znodes.unquoted(name) for name in await store.children(znodes.GROUP_CONFIGS)]
    for group, configs in (await read_group_configs(store, groups)).items():
        image = image.with_group_configs(group, configs)
    users = [znodes.unquoted(name) for name in await store.children(znodes.USERS)]
    image = image.with_users(await read_users(store, users))
    image = image.with_acls(await read_acls(store, await store.children(znodes.ACLS)))
    image = image.with_quotas(await read_quotas(store, await store.children(znodes.QUOTAS)))
    topics = await read_topics(store, await store.children(znodes.TOPICS))
    return image.with_topics(topics.values())


async def read_members(store: CoordinationStore) -> tuple[list[RegisteredBroker], BrokerId]:
    """Registered brokers, and the controller."""
    names = await store.children(znodes.BROKER_IDS)
    broker_ids = [BrokerId(int(name)) for name in names if name.isdecimal()]
    paths = [znodes.CONTROLLER, *(znodes.broker_path(broker_id) for broker_id in broker_ids)]
    controller, *nodes = await store.get_many(paths)
    brokers = [
        decode_broker(broker_id, node)
        for broker_id, node in zip(broker_ids, nodes, strict=True)
        if node is not None
    ]
    if controller is None:
        return brokers, NO_LEADER
    return brokers, BrokerId(znodes.decode(controller.data, znodes.ControllerNode).broker_id)


async def read_broker_configs(store: CoordinationStore) -> dict[BrokerId | None, StoredConfigs]:
    names = await store.children(znodes.BROKER_CONFIGS)
    brokers = [None if name == znodes.CLUSTER_WIDE else BrokerId(int(name)) for name in names]
    nodes = await store.get_many([znodes.broker_configs_path(broker) for broker in brokers])
    return {
        broker: _decode_configs(node) for broker, node in zip(brokers, nodes, strict=True) if node is not None
    }


async def read_group_configs(store: CoordinationStore, groups: Sequence[str]) -> dict[str, StoredConfigs]:
    """Configs of each of these groups; empty if a group has none."""
    nodes = await store.get_many([znodes.group_configs_path(group) for group in groups])
    return {
        group: _decode_configs(node) if node is not None else StoredConfigs()
        for group, node in zip(groups, nodes, strict=True)
    }


async def read_users(store: CoordinationStore, names: Sequence[str]) -> dict[str, User]:
    """Users by name. A user without a node is returned with version -1."""
    nodes = await store.get_many([znodes.user_path(name) for name in names])
    return {
        name: User(name) if node is None else decode_user(name, node.data, node.version)
        for name, node in zip(names, nodes, strict=True)
    }


async def read_acls(store: CoordinationStore, names: Sequence[str]) -> dict[ResourcePattern, StoredAcls]:
    """Access control lists of these nodes. A list without a node is returned with version -1."""
    nodes = await store.get_many([znodes.acls_path(name) for name in names])
    return {
        resource_of(name): StoredAcls() if node is None else StoredAcls(decode_acls(node.data), node.version)
        for name, node in zip(names, nodes, strict=True)
    }


async def read_quotas(store: CoordinationStore, names: Sequence[str]) -> dict[QuotaEntity, StoredQuotas]:
    """Quotas of these nodes. Quotas without a node are returned with version -1."""
    nodes = await store.get_many([znodes.quotas_path(name) for name in names])
    return {
        entity_of(name): StoredQuotas()
        if node is None
        else StoredQuotas(decode_quotas(node.data), node.version)
        for name, node in zip(names, nodes, strict=True)
    }


async def read_topics(store: CoordinationStore, names: Collection[str]) -> dict[str, TopicImage]:
    """Images of the topics of these names that exist."""
    topics: dict[str, TopicImage] = {}
    async for name, read in _read_whole(store, names):
        if read.topic.partitions or VIEW_OF in read.topic.configs:
            topics[name] = read.visible()
    return topics


async def read_unfinished(store: CoordinationStore, names: Collection[str]) -> list[UnfinishedChange]:
    """Topics of these names with a change that is in progress or was abandoned."""
    found: list[UnfinishedChange] = []
    async for _, read in _read_whole(store, names):
        if read.topic.pending:
            found.append(read.unfinished())
    return found


async def reread_partitions(
    store: CoordinationStore, wanted: Mapping[str, Sequence[int]], known: Mapping[str, TopicImage]
) -> dict[str, TopicImage]:
    """Images of known topics, with only these partitions read again. A topic with any other change is read as
    a whole.
    """
    names = [name for name in wanted if name in known]
    paths = [path for name in names for path in _around(name, wanted[name])]
    nodes = iter(await store.get_many(paths))
    topics: dict[str, TopicImage] = {}
    for name in names:
        first, *states, last = [next(nodes) for _ in range(len(wanted[name]) + 2)]
        topic = known[name]
        if not (_is_same(first, last) and _is_known(first, topic)):
            continue
        partitions = list(topic.partitions)
        for index, state in zip(wanted[name], states, strict=True):
            if state is None:
                raise _missing(name, index)
            partitions[index] = decode_partition(state)
        topics[name] = replace(topic, partitions=tuple(partitions))
    return topics | await read_topics(store, wanted.keys() - topics.keys())


@dataclass(frozen=True, slots=True)
class _TopicNodes:
    """Nodes of one topic, all read without a change in between."""

    name: str
    topic: znodes.TopicNode
    version: int
    states: Sequence[Node | None]

    def visible(self) -> TopicImage:
        states = self.states[: self.topic.partitions]
        if None in states:
            raise _missing(self.name, states.index(None))
        partitions = tuple(decode_partition(node) for node in states if node is not None)
        topic_id, is_unfinished = TopicId(self.topic.topic_id), self.topic.pending > 0
        removed = tuple(
            RemovedPartition(Offset(end), LeaderEpoch(epoch)) for end, epoch in self.topic.removed
        )
        return TopicImage(
            self.name, topic_id, partitions, self.topic.configs, self.version, is_unfinished, removed
        )

    def unfinished(self) -> UnfinishedChange:
        count = self.topic.partitions
        rest = [index for index, node in enumerate(self.states) if index >= count and node is not None]
        return UnfinishedChange(self.name, self.topic, self.version, rest)


async def _read_whole(
    store: CoordinationStore, names: Collection[str]
) -> AsyncIterator[tuple[str, _TopicNodes]]:
    """Read topics in two rounds: topic nodes, then partition nodes. A topic that changes between the rounds
    is read again.
    """
    left = list(names)
    while left:
        nodes = await store.get_many([znodes.topic_path(name) for name in left])
        found = {
            name: (node, znodes.decode(node.data, znodes.TopicNode))
            for name, node in zip(left, nodes, strict=True)
            if node is not None
        }
        counts = {name: max(topic.partitions, topic.pending) for name, (_, topic) in found.items()}
        paths = [path for name, count in counts.items() for path in _around(name, range(count))[1:]]
        again = iter(await store.get_many(paths))
        left = []
        for name, (node, topic) in found.items():
            *states, last = [next(again) for _ in range(counts[name] + 1)]
            if _is_same(node, last):
                yield name, _TopicNodes(name, topic, node.version, states)
            else:
                left.append(name)


def _around(topic: str, partitions: Sequence[int]) -> list[str]:
    """Paths of the topic node, the partition nodes, and the topic node again. If both reads of the topic node
    are equal, the partitions belong to that version.
    """
    path = znodes.topic_path(topic)
    return [path, *(znodes.partition_path(topic, index) for index in partitions), path]


def _is_same(first: Node | None, last: Node | None) -> bool:
    if first is None or last is None:
        return first is last
    return (first.created, first.version) == (last.created, last.version)


def _is_known(node: Node | None, topic: TopicImage) -> bool:
    """True if the topic was read from this version of the node."""
    if node is None or node.version != topic.version:
        return False
    return znodes.decode(node.data, znodes.TopicNode).topic_id == topic.id


def _missing(topic: str, partition: int) -> StorageError:
    """Error for a missing partition node. Skipping the partition would make its records look deleted."""
    return StorageError(f"partition {partition} of topic {topic} is missing in the coordination store")


def _decode_configs(node: Node) -> StoredConfigs:
    return StoredConfigs(znodes.decode(node.data, znodes.ConfigsNode).configs, node.version)


def decode_broker(broker_id: BrokerId, node: Node) -> RegisteredBroker:
    broker = znodes.decode(node.data, znodes.BrokerNode)
    epoch = BrokerEpoch(broker.epoch)
    return RegisteredBroker(
        broker_id,
        broker.host,
        broker.port,
        epoch,
        broker.machine_id,
        broker.rack,
        broker.stopping,
        broker.directory_version,
        tuple(map(BrokerId, broker.siblings)),
        broker.cordoned,
        {name: Address(host, port) for name, (host, port) in broker.listeners.items()},
    )


def encode_broker(broker: RegisteredBroker) -> bytes:
    return znodes.encode(
        znodes.BrokerNode(
            broker.host,
            broker.port,
            broker.epoch,
            broker.machine_id,
            broker.rack,
            broker.is_stopping,
            broker.directory_version,
            broker.siblings,
            broker.is_cordoned,
            {name: (address.host, address.port) for name, address in broker.listeners.items()},
        )
    )


def decode_partition(node: Node) -> PartitionState:
    state = znodes.decode(node.data, znodes.PartitionNode)
    return PartitionState(
        BrokerId(state.leader),
        LeaderEpoch(state.leader_epoch),
        tuple(map(BrokerId, state.replicas)),
        tuple(map(BrokerId, state.isr)),
        node.version,
        tuple(map(BrokerId, state.adding)),
        tuple(map(BrokerId, state.target)),
        tuple(map(BrokerId, state.last_resort)),
        tuple(map(BrokerId, state.eligible)),
        Offset(state.committed),
        Offset(state.sole_end),
        LeaderEpoch(state.unclean_epoch),
        PartitionPhase(state.phase),
        state.phase_since_ms,
        state.waits_for_groups,
        Offset(state.first_offset),
    )


def encode_partition(partition: PartitionState) -> bytes:
    return znodes.encode(
        znodes.PartitionNode(
            partition.leader,
            partition.leader_epoch,
            partition.replicas,
            partition.isr,
            partition.adding_replicas,
            partition.target_replicas,
            partition.last_resort,
            partition.eligible,
            partition.committed,
            partition.sole_end,
            partition.unclean_epoch,
            int(partition.phase),
            partition.phase_since_ms,
            partition.waits_for_groups,
            partition.first_offset,
        )
    )


def encode_topic(topic: TopicImage, pending: int = 0, writer: str = "") -> bytes:
    node = znodes.TopicNode(
        topic.id, len(topic.partitions), dict(topic.configs), pending, writer, topic.removed
    )
    return znodes.encode(node)
