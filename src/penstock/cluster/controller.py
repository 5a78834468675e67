"""The controller: the one who decides about topics, configs, leaders and producer ids, and writes it down.

A change is decided purely from the image, written as one multi that is conditional on all it was decided from
and on still being controller, and only then becomes the new image. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random  # noqa: TID251 - the type; the numbers come from the caller
from typing import TypeVar

from penstock.cluster import znodes
from penstock.cluster.change_list import ChangeList
from penstock.cluster.config_changes import (
    ConfigChange,
    ConfigResourceType,
    altered_broker_configs,
    altered_group_configs,
    altered_topic_configs,
)
from penstock.cluster.coordination import (
    BadVersion,
    CoordinationStore,
    Create,
    Delete,
    Node,
    Operation,
    SessionExpired,
    Set,
    Unreachable,
)
from penstock.cluster.decisions import Decision, attempt, decide_to_have, existing, names_of, repeated_in
from penstock.cluster.election import make_ready, take_office
from penstock.cluster.image import Broker, ClusterImage, Configs, ImageChange, Partition, Topic
from penstock.cluster.loading import encode_broker, encode_partition, encode_topic, load
from penstock.cluster.topic_writes import (
    NOTHING,
    Writes,
    batches,
    chunks,
    creation,
    deletion,
    growth,
    tidying,
)
from penstock.cluster.topics import USE_DEFAULT, NewPartitions, NewTopic, TopicPlanner
from penstock.config import MAX_TOPICS_PER_REQUEST, NUM_PARTITIONS, BrokerConfig
from penstock.errors import BrokerError, ConfigError, ErrorCode, StorageError, UnknownOutcome
from penstock.model import BrokerEpoch, BrokerId, LeaderEpoch, TopicPartition

PRODUCER_ID_BLOCK = 1_000
MAX_ATTEMPTS = 10
UNCLEAR = "the coordination store does not give a clear answer; try again"

R = TypeVar("R")
T = TypeVar("T")
V = TypeVar("V")


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
            return Decision(epoch, image.with_broker(broker), Writes(operations))

        return await self._change(decide)

    async def take_leadership(self) -> None:
        """Lead every partition this broker is in sync with, in a new leader epoch."""
        names = [
            (topic.name, index)
            for topic in self.image.topics.values()
            for index, partition in enumerate(topic.partitions)
            if self._node_id in partition.isr
        ]
        for chunk in chunks(names):
            await self._change(partial(self._lead, names=chunk))

    async def create_topics(
        self, new_topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[Topic | BrokerError]:
        """The topics as made, or why not, in order."""
        repeated = repeated_in([new.name for new in new_topics])

        def decide(batch: Sequence[NewTopic], image: ClusterImage) -> Decision[list[Topic | BrokerError]]:
            planner = TopicPlanner(image, self.config, self._random)
            plans = [attempt(planner.plan_topic, new, new.name in repeated) for new in batch]
            if validate_only:
                return Decision(plans, image)
            return decide_to_have(image, plans, creation)

        return await self._change_in_batches(new_topics, self._size_of, decide, at_once=validate_only)

    async def delete_topics(self, names: Sequence[str]) -> list[Topic | BrokerError]:
        """The topics that are no more, or why not, in order."""
        repeated = repeated_in(names)

        def decide(batch: Sequence[str], image: ClusterImage) -> Decision[list[Topic | BrokerError]]:
            results = [attempt(partial(existing, image), name, name in repeated) for name in batch]
            gone = [result for result in results if isinstance(result, Topic)]
            after = image.without_topics(topic.name for topic in gone) if gone else image
            writes = sum((deletion(topic) for topic in gone), NOTHING)
            return Decision(results, after, writes, names_of(gone))

        return await self._change_in_batches(names, self._present, decide)

    async def create_partitions(
        self, requests: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[Topic | BrokerError]:
        """The topics with their partitions added, or why not, in order."""
        repeated = repeated_in([new.topic for new in requests])

        def decide(
            batch: Sequence[NewPartitions], image: ClusterImage
        ) -> Decision[list[Topic | BrokerError]]:
            planner = TopicPlanner(image, self.config, self._random)
            plans = [attempt(planner.plan_partitions, new, new.topic in repeated) for new in batch]
            if validate_only:
                return Decision(plans, image)
            return decide_to_have(
                image, plans, lambda topic: growth(topic, len(image.topics[topic.name].partitions))
            )

        return await self._change_in_batches(
            requests, lambda new: new.total - self._present(new.topic), decide
        )

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[BrokerError | None]:
        """None for what was changed, or why not, in order."""

        repeated = repeated_in([(change.kind, change.name) for change in changes])

        def decide(batch: Sequence[ConfigChange], image: ClusterImage) -> Decision[list[BrokerError | None]]:
            results: list[BrokerError | None] = []
            operations: list[Operation] = []
            after = image
            for change in batch:
                judge = partial(self._alter, after)
                altered = attempt(judge, change, (change.kind, change.name) in repeated)
                if isinstance(altered, BrokerError):
                    results.append(altered)
                    continue
                after, operation = altered
                operations += [] if operation is None else [operation]
                results.append(None)
            if validate_only:
                return Decision(results, image)
            topics = {change.name for change in batch if change.kind is ConfigResourceType.TOPIC}
            return Decision(
                results, after, Writes(tuple(operations)), frozenset(topics & image.topics.keys())
            )

        return await self._change_in_batches(changes, lambda _: 1, decide, at_once=validate_only)

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
            except Unreachable as error:
                raise BrokerError(ErrorCode.request_timed_out, UNCLEAR) from error
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
        return Decision(None, image.with_topics(led), Writes(tuple(operations)), frozenset(partitions))

    def _alter(self, image: ClusterImage, change: ConfigChange) -> tuple[ClusterImage, Operation | None]:
        if change.kind is ConfigResourceType.GROUP:
            return self._alter_group(image, change)
        if change.kind is ConfigResourceType.TOPIC:
            topic = existing(image, change.name)
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

    def _size_of(self, new: NewTopic) -> int:
        if new.assignment:
            return len(new.assignment)
        return self.config[NUM_PARTITIONS] if new.partitions == USE_DEFAULT else new.partitions

    def _present(self, name: str) -> int:
        topic = self.image.topic(name)
        return len(topic.partitions) if topic else 0

    async def _change_in_batches(
        self,
        items: Sequence[T],
        size_of: Callable[[T], int],
        decide: Callable[[Sequence[T], ClusterImage], Decision[list[V | BrokerError]]],
        *,
        at_once: bool = False,
    ) -> list[V | BrokerError]:
        """Each item stands for itself, so more than fits into one write is several changes."""
        self._check_count(items)
        results: list[V | BrokerError] = []
        sizes = [max(1, size_of(item)) for item in items]
        for batch in [items] if at_once else batches(items, sizes):
            try:
                decided = await self._change(partial(decide, batch))
            except BrokerError as error:
                if not results:
                    raise
                return results + [error] * (len(items) - len(results))
            results += decided
        return results

    async def _change(self, decide: Callable[[ClusterImage], Decision[R]]) -> R:
        async with self._changing:
            if self._change_list is None:
                raise BrokerError(ErrorCode.not_controller, "this broker is not the controller")
            try:
                for _ in range(MAX_ATTEMPTS):
                    decision = decide(self.image)
                    if not decision.writes.visible:
                        return decision.result
                    if await self._commit(self._change_list, decision):
                        return decision.result
                    await self._reload()
            except SessionExpired as error:
                raise BrokerError(ErrorCode.not_controller, "this broker is controller no more") from error
            except Unreachable as error:
                raise BrokerError(ErrorCode.request_timed_out, UNCLEAR) from error
        raise BrokerError(ErrorCode.request_timed_out, UNCLEAR)

    async def _commit(self, change_list: ChangeList, decision: Decision[R]) -> bool:
        if not await _write_unseen(change_list, decision.writes.before):
            return False
        if not await change_list.commit(decision.writes.visible, sorted(decision.topics)):
            return False
        self._publish(decision.image, decision.topics)
        with suppress(BrokerError):  # the change is made; what is not tidied is found by the next load
            await _write_unseen(change_list, decision.writes.after)
        return True

    def _publish(self, image: ClusterImage, topics: frozenset[str]) -> None:
        change = ImageChange(self.image, image, topics)
        if image.broker_configs != self.image.broker_configs:
            self.config = self._started_with.with_overrides(image.broker_overrides(self._node_id))
        self.image = image
        for callback in self._subscribers:
            callback(change)

    async def _load_tidied(self, change_list: ChangeList) -> ClusterImage:
        """Nothing may be decided about a topic whose node still tells of an unfinished change."""
        for _ in range(MAX_ATTEMPTS):
            image, unfinished = await load(self._store)
            if not unfinished:
                return image
            for rest in unfinished:
                await _write_unseen(change_list, tidying(rest))
        raise BrokerError(ErrorCode.request_timed_out, UNCLEAR)

    async def _reload(self) -> None:
        """Read everything again; subscribers hear of what others have changed."""
        assert self._change_list is not None
        image = await self._load_tidied(self._change_list)
        self._broker_epoch = await self._store.get(znodes.BROKER_EPOCH)
        await self._change_list.load()
        if image != self.image:
            before, after = self.image.topics, image.topics
            names = before.keys() | after.keys()
            self._publish(image, frozenset(name for name in names if before.get(name) != after.get(name)))


async def _write_unseen(change_list: ChangeList, writes: Sequence[Sequence[Operation]]) -> bool:
    for operations in writes:
        if not await change_list.write_unseen(operations):
            return False
    return True


def _broker_id(image: ClusterImage, name: str) -> BrokerId | None:
    if not name:
        return None
    if not (name.isascii() and name.isdigit() and BrokerId(int(name[:10])) in image.brokers):
        raise BrokerError(
            ErrorCode.invalid_request, f"there is no broker {name[:80]!r}; empty means all brokers"
        )
    return BrokerId(int(name))
