"""From the coordination store to an image, with few pipelined reads, and from an image's parts to nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.cluster import znodes
from penstock.cluster.coordination import CoordinationStore, Node, NoNode
from penstock.cluster.image import NO_LEADER, Broker, ClusterImage, Configs, Partition, Topic
from penstock.errors import StorageError
from penstock.model import BrokerEpoch, BrokerId, LeaderEpoch, TopicId


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A topic with partition nodes that do not count: someone stopped in the middle of a large change."""

    topic: str
    node: znodes.TopicNode
    version: int
    partitions: Sequence[int]
    """Those that are there."""


async def load_image(store: CoordinationStore) -> ClusterImage:
    image, _ = await load(store)
    return image


async def load(store: CoordinationStore) -> tuple[ClusterImage, list[Unfinished]]:
    cluster = znodes.decode((await store.get(znodes.CLUSTER)).data, znodes.ClusterNode)
    image = ClusterImage(cluster.cluster_id, await _load_controller(store))
    for broker in await _load_brokers(store):
        image = image.with_broker(broker)
    for name in await store.children(znodes.BROKER_CONFIGS):
        broker_id = None if name == znodes.CLUSTER_WIDE else BrokerId(int(name))
        node = await store.get(znodes.broker_configs_path(broker_id))
        configs = Configs(znodes.decode(node.data, znodes.ConfigsNode).configs, node.version)
        image = image.with_configs(broker_id, configs)
    image = replace(image, group_configs=await _load_group_configs(store))
    topics, unfinished = await _load_topics(store)
    return image.with_topics(topics), unfinished


async def _load_controller(store: CoordinationStore) -> BrokerId:
    try:
        node = await store.get(znodes.CONTROLLER)
    except NoNode:
        return NO_LEADER
    return BrokerId(znodes.decode(node.data, znodes.ControllerNode).broker_id)


async def _load_brokers(store: CoordinationStore) -> list[Broker]:
    broker_ids = [BrokerId(int(name)) for name in await store.children(znodes.BROKER_IDS)]
    nodes = await store.get_many([znodes.broker_path(broker_id) for broker_id in broker_ids])
    return [
        decode_broker(broker_id, node)
        for broker_id, node in zip(broker_ids, nodes, strict=True)
        if node is not None
    ]


async def _load_group_configs(store: CoordinationStore) -> dict[str, Configs]:
    groups = [znodes.group_of(name) for name in await store.children(znodes.GROUP_CONFIGS)]
    nodes = await store.get_many([znodes.group_configs_path(group) for group in groups])
    return {
        group: Configs(znodes.decode(node.data, znodes.ConfigsNode).configs, node.version)
        for group, node in zip(groups, nodes, strict=True)
        if node is not None
    }


async def _load_topics(store: CoordinationStore) -> tuple[list[Topic], list[Unfinished]]:
    """Two rounds: all topics, then all their partitions. A topic that goes in between is left out."""
    names = await store.children(znodes.TOPICS)
    nodes = await store.get_many([znodes.topic_path(name) for name in names])
    found = [
        (name, node.version, znodes.decode(node.data, znodes.TopicNode))
        for name, node in zip(names, nodes, strict=True)
        if node is not None
    ]
    paths = [
        znodes.partition_path(name, index)
        for name, _, topic in found
        for index in range(max(topic.partitions, topic.pending))
    ]
    partitions = iter(await store.get_many(paths))
    topics, unfinished = [], []
    for name, version, topic in found:
        states = [next(partitions) for _ in range(topic.partitions)]
        rest = [index for index in range(topic.partitions, topic.pending) if next(partitions) is not None]
        if topic.partitions:
            made = _decode_partitions(name, states)
            topics.append(Topic(name, TopicId(topic.topic_id), made, topic.configs, version))
        if topic.pending:
            unfinished.append(Unfinished(name, topic, version, rest))
    return topics, unfinished


def _decode_partitions(topic: str, nodes: Sequence[Node | None]) -> tuple[Partition, ...]:
    if None in nodes:
        # Leaving partitions out would make their records look deleted.
        raise StorageError(
            f"partition {nodes.index(None)} of topic {topic} is missing in the coordination store"
        )
    return tuple(decode_partition(node) for node in nodes if node is not None)


def decode_broker(broker_id: BrokerId, node: Node) -> Broker:
    broker = znodes.decode(node.data, znodes.BrokerNode)
    return Broker(
        broker_id, broker.host, broker.port, BrokerEpoch(broker.epoch), broker.machine_id, broker.rack
    )


def encode_broker(broker: Broker) -> bytes:
    return znodes.encode(
        znodes.BrokerNode(broker.host, broker.port, broker.epoch, broker.machine_id, broker.rack)
    )


def decode_partition(node: Node) -> Partition:
    state = znodes.decode(node.data, znodes.PartitionNode)
    return Partition(
        BrokerId(state.leader),
        LeaderEpoch(state.leader_epoch),
        tuple(map(BrokerId, state.replicas)),
        tuple(map(BrokerId, state.isr)),
        node.version,
    )


def encode_partition(partition: Partition) -> bytes:
    return znodes.encode(
        znodes.PartitionNode(partition.leader, partition.leader_epoch, partition.replicas, partition.isr)
    )


def encode_topic(topic: Topic, pending: int = 0) -> bytes:
    return znodes.encode(znodes.TopicNode(topic.id, len(topic.partitions), dict(topic.configs), pending))
