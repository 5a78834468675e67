"""The controller: the one who decides about topics, configs, leaders and producer ids, and writes it down.

A change is decided purely from the image, written as one multi that is conditional on all it was decided from
and on still being controller, and only then becomes the new image. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random  # noqa: TID251 - the type; the numbers come from the caller
from typing import Generic, TypeVar

from penstock.cluster import znodes
from penstock.cluster.change_list import ChangeList
from penstock.cluster.config_changes import (
    ConfigChange,
    ConfigResourceType,
    altered_broker_configs,
    altered_group_configs,
    altered_topic_configs,
)
from penstock.cluster.coordination import BadVersion, CoordinationStore, Create, Delete, Node, Operation, Set
from penstock.cluster.election import make_ready, take_office
from penstock.cluster.image import Broker, ClusterImage, Configs, ImageChange, Partition, Topic
from penstock.cluster.loading import encode_broker, encode_partition, encode_topic, load_image
from penstock.cluster.topics import NewPartitions, NewTopic, TopicPlanner
from penstock.config import MAX_TOPICS_PER_REQUEST, BrokerConfig
from penstock.errors import BrokerError, ConfigError, ErrorCode, StorageError, UnknownOutcome
from penstock.model import BrokerEpoch, BrokerId, LeaderEpoch, TopicPartition

PRODUCER_ID_BLOCK = 1_000
MAX_PARTITIONS_PER_MULTI = 500
MAX_ATTEMPTS = 10
UNCLEAR = "the coordination store does not give a clear answer; try again"

R = TypeVar("R")
T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """What to write (perhaps nothing), the image once it is written, and what to answer."""

    result: R
    image: ClusterImage
    operations: Sequence[Operation] = ()
    topics: frozenset[str] = frozenset()


class Controller:
    def __init__(
        self, store: CoordinationStore, node_id: BrokerId, config: BrokerConfig, random: Random
    ) -> None:
        """`config` is what the broker was started with; `self.config` also has the changes at run time."""
        self.image = ClusterImage("")
        self.config = config
        self._store = store
        self._node_id = node_id
        self._started_with = config
        self._random = random
        self._subscribers: list[Callable[[ImageChange], None]] = []
        self._changing = asyncio.Lock()
        self._change_list: ChangeList | None = None
        self._broker_epoch: Node | None = None

    def subscribe(self, callback: Callable[[ImageChange], None]) -> None:
        """Be called, on the loop, with every later change, in order and before its maker gets an answer."""
        self._subscribers.append(callback)

    async def load(self) -> ClusterImage:
        """Make the store ready where it is new, become controller, and read everything."""
        async with self._changing:
            await make_ready(self._store, self._random)
            self._change_list = ChangeList(self._store, await take_office(self._store, self._node_id))
            await self._reload()
        return self.image

    async def close(self) -> None:
        """Let a change that is under way come to its end, and make no more."""
        async with self._changing:
            self._change_list = None

    async def register_broker(
        self, host: str, port: int, machine_id: str, rack: str | None = None
    ) -> BrokerEpoch:
        """Announce this broker; its epoch is higher than any that was ever given out."""

        def decide(image: ClusterImage) -> Decision[BrokerEpoch]:
            if self._node_id in image.brokers:
                raise BrokerError(
                    ErrorCode.duplicate_broker_registration, f"broker {self._node_id} is registered already"
                )
            assert self._broker_epoch is not None
            last = znodes.decode(self._broker_epoch.data, znodes.BrokerEpochNode).epoch
            epoch = BrokerEpoch(last + 1)
            broker = Broker(self._node_id, host, port, epoch, machine_id, rack)
            counter = znodes.encode(znodes.BrokerEpochNode(epoch))
            operations = (
                Set(znodes.BROKER_EPOCH, counter, self._broker_epoch.version),
                Create(znodes.broker_path(self._node_id), encode_broker(broker), ephemeral=True),
            )
            return Decision(epoch, image.with_broker(broker), operations)

        return await self._change(decide)

    async def take_leadership(self) -> None:
        """Lead every partition this broker is in sync with, in a new leader epoch."""
        names = [
            (topic.name, index)
            for topic in self.image.topics.values()
            for index, partition in enumerate(topic.partitions)
            if self._node_id in partition.isr
        ]
        for start in range(0, len(names), MAX_PARTITIONS_PER_MULTI):
            chunk = names[start : start + MAX_PARTITIONS_PER_MULTI]
            await self._change(partial(self._lead, names=chunk))

    async def create_topics(
        self, new_topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[Topic | BrokerError]:
        """The topics as made, or why not, in order."""

        def decide(image: ClusterImage) -> Decision[list[Topic | BrokerError]]:
            planner = TopicPlanner(image, self.config, self._random)
            self._check_count(new_topics)
            repeated = _repeated([new.name for new in new_topics])
            results = [_attempt(planner.plan_topic, new, new.name in repeated) for new in new_topics]
            made = [result for result in results if isinstance(result, Topic)]
            if validate_only or not made:
                return Decision(results, image)
            operations = [operation for topic in made for operation in _creation(topic)]
            return Decision(results, image.with_topics(made), operations, _names(made))

        return await self._change(decide)

    async def delete_topics(self, names: Sequence[str]) -> list[Topic | BrokerError]:
        """The topics that are no more, or why not, in order."""

        def decide(image: ClusterImage) -> Decision[list[Topic | BrokerError]]:
            self._check_count(names)
            repeated = _repeated(names)
            results = [_attempt(partial(_existing, image), name, name in repeated) for name in names]
            gone = [result for result in results if isinstance(result, Topic)]
            operations = [operation for topic in gone for operation in _deletion(topic)]
            after = image.without_topics(topic.name for topic in gone) if gone else image
            return Decision(results, after, operations, _names(gone))

        return await self._change(decide)

    async def create_partitions(
        self, requests: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[Topic | BrokerError]:
        """The topics with their partitions added, or why not, in order."""

        def decide(image: ClusterImage) -> Decision[list[Topic | BrokerError]]:
            planner = TopicPlanner(image, self.config, self._random)
            self._check_count(requests)
            repeated = _repeated([new.topic for new in requests])
            results = [_attempt(planner.plan_partitions, new, new.topic in repeated) for new in requests]
            grown = [result for result in results if isinstance(result, Topic)]
            if validate_only or not grown:
                return Decision(results, image)
            operations = [
                operation
                for topic in grown
                for operation in _growth(topic, len(image.topics[topic.name].partitions))
            ]
            return Decision(results, image.with_topics(grown), operations, _names(grown))

        return await self._change(decide)

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[BrokerError | None]:
        """None for what was changed, or why not, in order."""

        def decide(image: ClusterImage) -> Decision[list[BrokerError | None]]:
            self._check_count(changes)
            repeated = _repeated([(change.kind, change.name) for change in changes])
            results: list[BrokerError | None] = []
            operations: list[Operation] = []
            after = image
            for change in changes:
                judge = partial(self._alter, after)
                altered = _attempt(judge, change, (change.kind, change.name) in repeated)
                if isinstance(altered, BrokerError):
                    results.append(altered)
                    continue
                after, operation = altered
                operations += [] if operation is None else [operation]
                results.append(None)
            if validate_only:
                return Decision(results, image)
            topics = {change.name for change in changes if change.kind is ConfigResourceType.TOPIC}
            return Decision(results, after, operations, frozenset(topics & image.topics.keys()))

        return await self._change(decide)

    async def allocate_producer_ids(self) -> range:
        """A block of ids that nobody else will ever get; an unknown outcome costs a block, nothing more."""
        for _ in range(MAX_ATTEMPTS):
            node = await self._store.get(znodes.PRODUCER_IDS)
            first = znodes.decode(node.data, znodes.ProducerIdsNode).next_producer_id
            following = znodes.encode(znodes.ProducerIdsNode(first + PRODUCER_ID_BLOCK))
            try:
                await self._store.set(znodes.PRODUCER_IDS, following, node.version)
            except (BadVersion, UnknownOutcome):
                continue
            except StorageError as error:
                raise BrokerError(ErrorCode.kafka_storage_error, str(error)) from error
            return range(first, first + PRODUCER_ID_BLOCK)
        raise BrokerError(ErrorCode.request_timed_out, UNCLEAR)

    def _check_count(self, items: Sequence[object]) -> None:
        most = self.config[MAX_TOPICS_PER_REQUEST]
        if len(items) > most:
            raise BrokerError(
                ErrorCode.policy_violation,
                f"{len(items)} items are more than max.topics.per.request ({most})",
            )

    def _lead(self, image: ClusterImage, names: Sequence[tuple[str, int]]) -> Decision[None]:
        partitions: dict[str, list[Partition]] = {}
        operations: list[Operation] = []
        for name, index in names:
            partition = image.partition(TopicPartition(name, index))
            if partition is None or self._node_id not in partition.isr:
                continue
            mine = replace(
                partition,
                leader=self._node_id,
                leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
                partition_epoch=partition.partition_epoch + 1,
            )
            operations.append(
                Set(znodes.partition_path(name, index), encode_partition(mine), partition.partition_epoch)
            )
            partitions.setdefault(name, list(image.topics[name].partitions))[index] = mine
        led = [replace(image.topics[name], partitions=tuple(states)) for name, states in partitions.items()]
        return Decision(None, image.with_topics(led), operations, frozenset(partitions))

    def _alter(self, image: ClusterImage, change: ConfigChange) -> tuple[ClusterImage, Operation | None]:
        if change.kind is ConfigResourceType.GROUP:
            return self._alter_group(image, change)
        if change.kind is ConfigResourceType.TOPIC:
            topic = _existing(image, change.name)
            configs = altered_topic_configs(topic.configs, change, self.config)
            altered = replace(topic, configs=configs, version=topic.version + 1)
            operation: Operation = Set(znodes.topic_path(topic.name), encode_topic(altered), topic.version)
            return image.with_topics([altered]), operation
        broker_id = _broker_id(image, change.name)
        current = image.configs_of(broker_id)
        values = altered_broker_configs(current.values, change, self.config)
        after = image.with_configs(broker_id, Configs(values, current.version + 1))
        self._check_broker_configs(after)
        path, data = znodes.broker_configs_path(broker_id), znodes.encode(znodes.ConfigsNode(values))
        return after, Create(path, data) if current.version < 0 else Set(path, data, current.version)

    def _alter_group(
        self, image: ClusterImage, change: ConfigChange
    ) -> tuple[ClusterImage, Operation | None]:
        if not change.name:
            raise BrokerError(ErrorCode.invalid_request, "a group has a name")
        current = image.group_configs.get(change.name, Configs())
        values = altered_group_configs(current.values, change, self.config)
        after = image.with_group_configs(change.name, Configs(values, current.version + 1))
        path, data = znodes.group_configs_path(change.name), znodes.encode(znodes.ConfigsNode(values))
        if current.version < 0:
            return after, Create(path, data) if values else None
        return after, Set(path, data, current.version) if values else Delete(path, current.version)

    def _check_broker_configs(self, image: ClusterImage) -> None:
        """Cluster-wide and own settings must also fit together."""
        for broker_id in image.brokers:
            try:
                self._started_with.with_overrides(image.broker_overrides(broker_id))
            except ConfigError as error:
                raise BrokerError(ErrorCode.invalid_request, str(error)) from error

    async def _change(self, decide: Callable[[ClusterImage], Decision[R]]) -> R:
        async with self._changing:
            if self._change_list is None:
                raise BrokerError(ErrorCode.not_controller, "this broker is not the controller")
            for _ in range(MAX_ATTEMPTS):
                decision = decide(self.image)
                if not decision.operations:
                    return decision.result
                if await self._change_list.commit(decision.operations, sorted(decision.topics)):
                    self._publish(decision.image, decision.topics)
                    return decision.result
                await self._reload()
        raise BrokerError(ErrorCode.request_timed_out, UNCLEAR)

    def _publish(self, image: ClusterImage, topics: frozenset[str]) -> None:
        change = ImageChange(self.image, image, topics)
        if image.broker_configs != self.image.broker_configs:
            self.config = self._started_with.with_overrides(image.broker_overrides(self._node_id))
        self.image = image
        for callback in self._subscribers:
            callback(change)

    async def _reload(self) -> None:
        """Read everything again; subscribers hear of what others have changed."""
        assert self._change_list is not None
        image = await load_image(self._store)
        self._broker_epoch = await self._store.get(znodes.BROKER_EPOCH)
        await self._change_list.load()
        if image != self.image:
            before, after = self.image.topics, image.topics
            names = before.keys() | after.keys()
            self._publish(image, frozenset(name for name in names if before.get(name) != after.get(name)))


def _attempt(judge: Callable[[T], V], item: T, repeated: bool) -> V | BrokerError:
    if repeated:
        return BrokerError(ErrorCode.invalid_request, "it is named twice in one request")
    try:
        return judge(item)
    except BrokerError as error:
        return error


def _repeated(names: Sequence[Hashable]) -> set[Hashable]:
    return {name for name, count in Counter(names).items() if count > 1}


def _names(topics: Sequence[Topic]) -> frozenset[str]:
    return frozenset(topic.name for topic in topics)


def _existing(image: ClusterImage, name: str) -> Topic:
    topic = image.topic(name)
    if topic is None:
        raise BrokerError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name[:80]!r}")
    return topic


def _broker_id(image: ClusterImage, name: str) -> BrokerId | None:
    if not name:
        return None
    if not (name.isascii() and name.isdigit() and BrokerId(int(name[:10])) in image.brokers):
        raise BrokerError(
            ErrorCode.invalid_request, f"there is no broker {name[:80]!r}; empty means all brokers"
        )
    return BrokerId(int(name))


def _creation(topic: Topic) -> list[Operation]:
    return [Create(znodes.topic_path(topic.name), encode_topic(topic)), *_partition_nodes(topic, 0)]


def _growth(topic: Topic, present: int) -> list[Operation]:
    changed = Set(znodes.topic_path(topic.name), encode_topic(topic), topic.version - 1)
    return [changed, *_partition_nodes(topic, present)]


def _partition_nodes(topic: Topic, first: int) -> list[Operation]:
    return [
        Create(znodes.partition_path(topic.name, index), encode_partition(topic.partitions[index]))
        for index in range(first, len(topic.partitions))
    ]


def _deletion(topic: Topic) -> list[Operation]:
    return [
        *(Delete(znodes.partition_path(topic.name, index)) for index in range(len(topic.partitions))),
        Delete(znodes.topic_path(topic.name), topic.version),
    ]
