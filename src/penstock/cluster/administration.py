"""Administration of topics, partitions, configs and producer ids, on any broker.

A change is decided from the image without IO and written by the `ChangeMaker`. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random  # noqa: TID251 - the type; the numbers come from the caller
from typing import TypeVar

from penstock.cluster import dead_letter_topics, delays, views, znodes
from penstock.cluster.change_list import Scope
from penstock.cluster.change_maker import MAX_ATTEMPTS, UNCLEAR, ChangeMaker
from penstock.cluster.config_changes import (
    ConfigChange,
    altered_broker_configs,
    altered_group_configs,
    altered_topic_configs,
)
from penstock.cluster.coordination import (
    BadVersion,
    CoordinationStore,
    Create,
    Delete,
    NoNode,
    Operation,
    Set,
    StoreUnreachable,
)
from penstock.cluster.image import ClusterImage, StoredConfigs, TopicImage
from penstock.cluster.internal_topics import INTERNAL_TOPICS
from penstock.cluster.loading import encode_topic
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.metadata_change import (
    MetadataChange,
    attempt,
    change_of_topics,
    existing_topic,
    repeated_in,
    scope_of,
)
from penstock.cluster.topic_writes import (
    BYTES_PER_PARTITION,
    MAX_NODE_BYTES,
    NOTHING,
    Writes,
    batches,
    creation,
    deletion,
    growth,
)
from penstock.cluster.topics import USE_DEFAULT, CreatableTopic, NewPartitions, TopicPlanner
from penstock.cluster.user_admin import UserAdministration
from penstock.cluster.users import CredentialChange, alter_credentials
from penstock.config import MAX_TOPICS_PER_REQUEST, NUM_PARTITIONS
from penstock.config.resources import ConfigResourceType
from penstock.errors import BrokerError, ConfigError, ErrorCode, StorageError, UnknownOutcome
from penstock.model import BrokerId

PRODUCER_ID_BLOCK = 1_000

T = TypeVar("T")
V = TypeVar("V")


class Administration:
    def __init__(
        self,
        store: CoordinationStore,
        metadata: ClusterMetadata,
        changes: ChangeMaker,
        random: Random,
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._changes = changes
        self._random = random
        self.users = UserAdministration(changes, random)

    async def create_topics(
        self, new_topics: Sequence[CreatableTopic], *, validate_only: bool = False
    ) -> list[TopicImage | BrokerError]:
        """Create topics. Returns the new topic or the error for each request, in order."""
        repeated = repeated_in([new.name for new in new_topics])

        def decide(
            batch: Sequence[CreatableTopic], image: ClusterImage
        ) -> MetadataChange[list[TopicImage | BrokerError]]:
            planner = TopicPlanner(image, self._metadata.config, self._random, INTERNAL_TOPICS)
            plans = [attempt(partial(self._plan, planner), new, new.name in repeated) for new in batch]
            if validate_only:
                return MetadataChange(plans)
            change = change_of_topics(plans, partial(creation, writer=self._changes.writer))
            sources = views.sources_of(image, (plan for plan in plans if isinstance(plan, TopicImage)))
            if not sources:
                return change
            made = [result for result in change.result if isinstance(result, TopicImage)]
            return replace(
                change, writes=views.touch(sources) + change.writes, scope=scope_of([*made, *sources])
            )

        return await self._change_in_batches(new_topics, self._size_of, decide, at_once=validate_only)

    async def delete_topics(self, names: Sequence[str]) -> list[TopicImage | BrokerError]:
        """Delete topics. Returns the deleted topic or the error for each name, in order."""
        repeated = repeated_in(names)

        def decide(
            batch: Sequence[str], image: ClusterImage
        ) -> MetadataChange[list[TopicImage | BrokerError]]:
            judge = partial(self._deletable, image, batch)
            results = [attempt(judge, name, name in repeated) for name in batch]
            gone = [result for result in results if isinstance(result, TopicImage)]
            writes = sum((deletion(topic, self._changes.writer) for topic in gone), NOTHING)
            return MetadataChange(results, writes, scope_of(gone))

        return await self._change_in_batches(names, self._present, decide)

    async def create_partitions(
        self, requests: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[TopicImage | BrokerError]:
        """Add partitions. Returns the topic with its new partitions, or the error, for each request, in
        order.
        """
        repeated = repeated_in([new.topic for new in requests])

        def decide(
            batch: Sequence[NewPartitions], image: ClusterImage
        ) -> MetadataChange[list[TopicImage | BrokerError]]:
            planner = TopicPlanner(image, self._metadata.config, self._random)
            plans = [attempt(planner.plan_partitions, new, new.topic in repeated) for new in batch]
            if validate_only:
                return MetadataChange(plans)

            def grow(topic: TopicImage) -> tuple[TopicImage, Writes]:
                return growth(topic, len(image.topics[topic.name].partitions), self._changes.writer)

            return change_of_topics(plans, grow)

        return await self._change_in_batches(
            requests, lambda new: new.total - self._present(new.topic), decide
        )

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[BrokerError | None]:
        """Alter configs. Returns None or the error for each change, in order."""

        repeated = repeated_in([(change.kind, change.name) for change in changes])

        def decide(
            batch: Sequence[ConfigChange], image: ClusterImage
        ) -> MetadataChange[list[BrokerError | None]]:
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
                return MetadataChange(results)
            made = [change for change, result in zip(batch, results, strict=True) if result is None]
            return MetadataChange(results, Writes(tuple(operations)), _scope(made))

        return await self._change_in_batches(changes, self._weight, decide, at_once=validate_only)

    async def alter_user_credentials(
        self, changes: Sequence[CredentialChange]
    ) -> dict[str, BrokerError | None]:
        """Alter SCRAM credentials. Returns None or the error for each user."""
        await self._changes.confirm()
        credential = f"{self._random.getrandbits(64):016x}"
        return await self._changes.make(lambda image: alter_credentials(image, changes, credential))

    async def allocate_producer_ids(self) -> range:
        """Allocate a block of producer ids. Blocks never overlap; a write with an unknown outcome wastes a block."""
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
            except StoreUnreachable as error:
                raise BrokerError(ErrorCode.request_timed_out, UNCLEAR) from error
            return range(first, first + PRODUCER_ID_BLOCK)
        raise BrokerError(ErrorCode.request_timed_out, UNCLEAR)

    async def controller_epoch(self) -> int:
        """Read the controller epoch. Raises BrokerError if the coordination store does not respond."""
        try:
            node = await self._store.get(znodes.CONTROLLER_EPOCH)
        except (StorageError, StoreUnreachable) as error:
            raise BrokerError(ErrorCode.request_timed_out, UNCLEAR) from error
        return znodes.decode(node.data, znodes.ControllerEpochNode).epoch

    async def unregister_broker(self, broker_id: BrokerId) -> None:
        """Remove a stopped broker that has no replicas from the cluster. Raises BrokerError if the broker
        cannot be removed.

        The removal is conditional on the broker's last registration, so a broker that registers in the
        meantime stays.
        """
        image = self._metadata.image
        if broker_id in image.brokers:
            raise BrokerError(
                ErrorCode.invalid_request, f"broker {broker_id} is running; drain and stop it first"
            )
        if replicas := image.replica_count(broker_id):
            raise BrokerError(
                ErrorCode.invalid_request,
                f"broker {broker_id} holds replicas of {replicas} partitions; reassign them first",
            )
        path = znodes.directory_path(broker_id)
        try:
            [node] = await self._store.get_many([path])
            if node is None:
                raise BrokerError(ErrorCode.broker_id_not_registered, f"broker {broker_id} is not registered")
            await self._store.delete(path, node.version)
        except NoNode:
            return  # another request has removed it
        except BadVersion:
            raise BrokerError(
                ErrorCode.invalid_request, f"broker {broker_id} has just registered again"
            ) from None
        except StorageError as error:
            raise BrokerError(ErrorCode.kafka_storage_error, str(error)) from error
        except (StoreUnreachable, UnknownOutcome) as error:
            raise BrokerError(ErrorCode.request_timed_out, UNCLEAR) from error

    def _deletable(self, image: ClusterImage, deleted: Sequence[str], name: str) -> TopicImage:
        return views.check_has_no_views(image, existing_topic(image, name), deleted)

    def _plan(self, planner: TopicPlanner, new: CreatableTopic) -> TopicImage:
        topic = planner.plan_topic(new)
        _fitting(encode_topic(topic))
        return topic

    def _check_count(self, items: Sequence[object]) -> None:
        most = self._metadata.config[MAX_TOPICS_PER_REQUEST]
        if len(items) > most:
            raise BrokerError(
                ErrorCode.policy_violation,
                f"{len(items)} items are more than max.topics.per.request allows ({most})",
            )

    def _alter(self, image: ClusterImage, change: ConfigChange) -> tuple[ClusterImage, Operation | None]:
        if change.kind is ConfigResourceType.GROUP:
            return self._alter_group(image, change)
        if change.kind is ConfigResourceType.TOPIC:
            topic = existing_topic(image, change.name)
            configs = altered_topic_configs(topic.configs, change, self._metadata.config)
            views.check_altered(image, topic, configs, INTERNAL_TOPICS)
            configs = delays.altered(topic, configs, self._metadata.config)
            altered = replace(topic, configs=configs, version=topic.version + 1)
            data = _fitting(encode_topic(altered))
            return image.with_topics([altered]), Set(znodes.topic_path(topic.name), data, topic.version)
        broker_id = _broker_id(image, change.name)
        current = image.configs_of(broker_id)
        values = altered_broker_configs(current.values, change, self._metadata.config)
        after = image.with_configs(broker_id, StoredConfigs(values, current.version + 1))
        self._check_broker_configs(after)
        path = znodes.broker_configs_path(broker_id)
        data = _fitting(znodes.encode(znodes.ConfigsNode(values)))
        return after, Create(path, data) if current.version < 0 else Set(path, data, current.version)

    def _alter_group(
        self, image: ClusterImage, change: ConfigChange
    ) -> tuple[ClusterImage, Operation | None]:
        if not change.name:
            raise BrokerError(ErrorCode.invalid_request, "the group id must not be empty")
        current = image.group_configs.get(change.name, StoredConfigs())
        values = altered_group_configs(current.values, change, self._metadata.config)
        dead_letter_topics.check_altered(image, change.name, current.values, values, self._metadata.config)
        after = image.with_group_configs(change.name, StoredConfigs(values, current.version + 1))
        path = znodes.group_configs_path(change.name)
        data = _fitting(znodes.encode(znodes.ConfigsNode(values)))
        if current.version < 0:
            return after, Create(path, data) if values else None
        return after, Set(path, data, current.version) if values else Delete(path, current.version)

    def _check_broker_configs(self, image: ClusterImage) -> None:
        """Check that cluster-wide configs and the configs of each broker are valid together."""
        for broker_id in image.brokers:
            try:
                self._metadata.started_with.with_overrides(image.broker_overrides(broker_id))
            except ConfigError as error:
                raise BrokerError(ErrorCode.invalid_request, str(error)) from error

    def _size_of(self, new: CreatableTopic) -> int:
        settings = sum(len(name) + len(value or "") for name, value in new.configs.items())
        partitions = (
            self._metadata.config[NUM_PARTITIONS] if new.partitions == USE_DEFAULT else new.partitions
        )
        return (len(new.assignment) or partitions) + settings // BYTES_PER_PARTITION

    def _weight(self, change: ConfigChange) -> int:
        """Upper bound of the node's size after the change, in units of `BYTES_PER_PARTITION`."""
        image, present = self._metadata.image, StoredConfigs().values
        if change.kind is ConfigResourceType.TOPIC and change.name in image.topics:
            present = image.topics[change.name].configs
        elif change.kind is ConfigResourceType.GROUP and change.name in image.group_configs:
            present = image.group_configs[change.name].values
        path = (
            2 * len(znodes.group_configs_path(change.name)) if change.kind is ConfigResourceType.GROUP else 0
        )
        altered = path + sum(len(each.name) + len(each.value or "") for each in change.alterations)
        kept = sum(len(name) + len(value) for name, value in present.items())
        return 1 + (altered + kept) // BYTES_PER_PARTITION

    def _present(self, name: str) -> int:
        topic = self._metadata.image.topic(name)
        return len(topic.partitions) if topic else 0

    async def _change_in_batches(
        self,
        items: Sequence[T],
        size_of: Callable[[T], int],
        decide: Callable[[Sequence[T], ClusterImage], MetadataChange[list[V | BrokerError]]],
        *,
        at_once: bool = False,
    ) -> list[V | BrokerError]:
        """Change the items in as many writes as their size requires. Items are independent of each other.
        Returns the result or the error of each item, in order; an error of the first write is raised.
        """
        self._check_count(items)
        results: list[V | BrokerError] = []
        sizes = [max(1, size_of(item)) for item in items]
        for batch in [items] if at_once else batches(items, sizes):
            try:
                decided = await self._changes.make(partial(decide, batch))
            except BrokerError as error:
                if not results:
                    raise
                return results + [error] * (len(items) - len(results))
            results += decided
        return results


def _fitting(data: bytes) -> bytes:
    if len(data) > MAX_NODE_BYTES:
        raise BrokerError(
            ErrorCode.policy_violation, f"its configs take more than {MAX_NODE_BYTES} bytes in total"
        )
    return data


def _scope(changes: Sequence[ConfigChange]) -> Scope:
    names: dict[ConfigResourceType, set[str]] = {kind: set() for kind in ConfigResourceType}
    for change in changes:
        names[change.kind].add(change.name)
    return Scope(
        frozenset(names[ConfigResourceType.TOPIC]),
        broker_configs=frozenset(name or znodes.CLUSTER_WIDE for name in names[ConfigResourceType.BROKER]),
        groups=frozenset(names[ConfigResourceType.GROUP]),
    )


def _broker_id(image: ClusterImage, name: str) -> BrokerId | None:
    if not name:
        return None
    if not (name.isascii() and name.isdigit() and BrokerId(int(name[:10])) in image.brokers):
        raise BrokerError(
            ErrorCode.invalid_request,
            f"broker {name[:80]!r} is not registered; an empty name means all brokers",
        )
    return BrokerId(int(name))
