"""Rules of CreateTopics and CreatePartitions: topic names, configs, partition counts and replica placement.
Pure.

A `TopicPlanner` serves one request. It checks each topic against the image and against the topics it has
planned, and raises BrokerError with Kafka's error code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from random import Random  # noqa: TID251 - the type; the numbers come from the caller
from uuid import UUID

from penstock.cluster.delays import with_delay
from penstock.cluster.image import ClusterImage, PartitionState, TopicImage
from penstock.cluster.placement import place_replicas
from penstock.cluster.shrinking import begin_again
from penstock.cluster.views import check_view, is_view, refuse_view
from penstock.config import (
    DEFAULT_REPLICATION_FACTOR,
    MAX_PARTITIONS_PER_BROKER,
    MAX_PARTITIONS_PER_TOPIC,
    MIN_INSYNC_REPLICAS,
    NUM_PARTITIONS,
    BrokerConfig,
    ConfigSource,
    TopicConfig,
)
from penstock.errors import BrokerError, ConfigError, ErrorCode
from penstock.model import BrokerId, LeaderEpoch, TopicId

MAX_NAME_LENGTH = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
USE_DEFAULT = -1

DEFAULT_REPLICAS = 3
"""Replication factor if none is configured and there are enough brokers."""

Assignment = Sequence[tuple[int, Sequence[int]]]
"""Pairs of partition index and replicas, as chosen by a client."""


@dataclass(frozen=True, slots=True)
class CreatableTopic:
    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignment: Assignment = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    topic: str
    total: int
    """Total number of partitions after the change."""
    assignment: Sequence[Sequence[int]] | None = None
    """Replicas of each added partition; None to let the broker choose."""


def check_topic_name(name: str) -> None:
    if name in (".", ".."):
        problem = "it is '.' or '..'"
    elif len(name) > MAX_NAME_LENGTH:
        problem = f"it is longer than {MAX_NAME_LENGTH} characters"
    elif not _NAME.fullmatch(name):
        problem = "give one or more of a-z, A-Z, 0-9, '.', '_' and '-'"
    else:
        return
    raise BrokerError(
        ErrorCode.invalid_topic_exception, f"{name[:80]!r} is not a valid topic name: {problem}"
    )


def draw_uuid(random: Random) -> UUID:
    """Random version 4 UUID whose base64 form does not start with a dash. Never one of Kafka's reserved ids."""
    while True:
        uuid = UUID(int=random.getrandbits(128), version=4)
        if uuid.bytes[0] >> 2 != 62:
            return uuid


class TopicPlanner:
    def __init__(
        self, image: ClusterImage, config: BrokerConfig, random: Random, internal: Collection[str] = ()
    ) -> None:
        """`internal` are the names of internal topics, which cannot have views."""
        self._image = image
        self._internal = internal
        self._config = config
        self._random = random
        self._planned: dict[str, TopicImage] = {}
        self._replicas: Counter[BrokerId] = Counter()
        """Number of replicas of each broker, including planned ones, for brokers that the plan uses."""

    @cached_property
    def _known_brokers(self) -> frozenset[BrokerId]:
        return self._image.known_brokers

    def plan_topic(self, new: CreatableTopic) -> TopicImage:
        """Check the request and return the planned topic."""
        check_topic_name(new.name)
        self._check_not_taken(new.name)
        configs = self._check_configs(new.configs)
        if is_view(configs):
            return self._plan_view(new, configs)
        configs = with_delay(configs, TopicConfig(self._config, configs))
        placement = self._place(new)
        self._reserve(placement)
        partitions = tuple(self._first_state(replicas) for replicas in placement)
        configs = self._with_min_insync(configs, len(placement[0]))
        topic = TopicImage(new.name, TopicId(draw_uuid(self._random)), partitions, configs, version=0)
        self._planned[new.name] = topic
        return topic

    def _plan_view(self, new: CreatableTopic, configs: dict[str, str]) -> TopicImage:
        """Plan a view. A requested number of partitions is ignored, because a view has the partitions of its
        source.
        """
        check_view(self._image, configs, self._internal)
        if new.assignment:
            raise BrokerError(ErrorCode.invalid_replica_assignment, "a view has the replicas of its source")
        topic = TopicImage(new.name, TopicId(draw_uuid(self._random)), (), configs, version=0)
        self._planned[new.name] = topic
        return topic

    def plan_partitions(self, new: NewPartitions) -> TopicImage:
        """Check the request and return the topic with the added partitions."""
        topic = self._image.topic(new.topic)
        if topic is None:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, f"there is no topic {new.topic[:80]!r}")
        refuse_view(self._image, topic.name)
        present = len(topic.partitions)
        if new.total <= present or topic.is_shrinking:
            raise _not_an_increase(topic, new.total)
        self._check_partition_count(new.total)
        replication_factor = len(topic.partitions[0].final_replicas)
        if new.assignment is None:
            placement = self._deal(new.total - present, replication_factor)
        else:
            placement = self._check_added(new.assignment, new.total - present, replication_factor)
        self._reserve(placement)
        added = tuple(
            begin_again(self._first_state(replicas), removed)
            for replicas, removed in zip_longest(placement, topic.removed[: len(placement)])
        )
        return replace(
            topic,
            partitions=topic.partitions + added,
            version=topic.version + 1,
            removed=topic.removed[len(added) :],
        )

    def _check_not_taken(self, name: str) -> None:
        if name in self._image.topics or name in self._planned:
            raise BrokerError(ErrorCode.topic_already_exists, f"topic {name} already exists")
        # Metric systems cannot tell '.' from '_', so Kafka allows only one of two such names.
        if "." in name or "_" in name:
            flat = name.replace(".", "_")
            for other in (*self._image.topics, *self._planned):
                if other.replace(".", "_") == flat:
                    raise BrokerError(
                        ErrorCode.invalid_topic_exception,
                        f"topic {name} collides with existing topic {other}",
                    )

    def _check_configs(self, configs: Mapping[str, str | None]) -> dict[str, str]:
        values = {}
        for name, value in configs.items():
            if value is None:
                raise BrokerError(ErrorCode.invalid_config, f"{name[:80]} has no value")
            values[name] = value
        try:
            TopicConfig(self._config, values)
        except ConfigError as error:
            raise BrokerError(ErrorCode.invalid_config, str(error)) from error
        return values

    def _place(self, new: CreatableTopic) -> list[tuple[BrokerId, ...]]:
        if new.assignment:
            return self._check_assignment(new)
        replication_factor = new.replication_factor
        if replication_factor == USE_DEFAULT:
            replication_factor = self._default_replication_factor()
        partitions = self._config[NUM_PARTITIONS] if new.partitions == USE_DEFAULT else new.partitions
        if replication_factor <= 0:
            raise BrokerError(
                ErrorCode.invalid_replication_factor,
                "the replication factor must be 1 or more, or -1 for the default",
            )
        self._check_partition_count(partitions)
        return self._deal(partitions, replication_factor)

    def _default_replication_factor(self) -> int:
        is_set = self._config.source(DEFAULT_REPLICATION_FACTOR) is not ConfigSource.DEFAULT_CONFIG
        is_cluster = self._image.count_machines(self._known_brokers) >= DEFAULT_REPLICAS
        return DEFAULT_REPLICAS if is_cluster and not is_set else self._config[DEFAULT_REPLICATION_FACTOR]

    def _with_min_insync(self, configs: dict[str, str], replication_factor: int) -> dict[str, str]:
        """Add min.insync.replicas=2 for a topic with three or more replicas, unless its configs set another value."""
        option = MIN_INSYNC_REPLICAS
        is_set = TopicConfig(self._config, configs).source(option) is not ConfigSource.DEFAULT_CONFIG
        if is_set or replication_factor < DEFAULT_REPLICAS:
            return configs
        return {**configs, option.name: str(DEFAULT_REPLICAS - 1)}

    def _deal(self, partitions: int, replication_factor: int) -> list[tuple[BrokerId, ...]]:
        """Place replicas on the registered brokers that are not cordoned. If there are too few, offline brokers
        are used as well, so that topics can be created while a broker restarts.
        """
        registered = self._image.brokers.values()
        brokers = [broker for broker in registered if not broker.is_cordoned] or list(registered)
        missing = replication_factor - len(brokers)
        away = sorted(self._known_brokers - self._image.brokers.keys()) if missing > 0 else []
        if missing > len(away):
            raise BrokerError(
                ErrorCode.invalid_replication_factor,
                f"replication factor {replication_factor} needs as many brokers; there are {len(brokers) + len(away)}",
            )
        first = self._random.randrange(len(brokers))
        placement = place_replicas(brokers, partitions, min(replication_factor, len(brokers)), first)
        if missing > 0:
            placement = [
                (*present, *(away[(index + nth) % len(away)] for nth in range(missing)))
                for index, present in enumerate(placement)
            ]
        return placement

    def _check_partition_count(self, partitions: int) -> None:
        if partitions <= 0:
            raise BrokerError(
                ErrorCode.invalid_partitions,
                "the number of partitions must be 1 or more, or -1 for the default",
            )
        most = self._config[MAX_PARTITIONS_PER_TOPIC]
        if partitions > most:
            raise BrokerError(
                ErrorCode.invalid_partitions,
                f"{partitions} partitions are more than max.partitions.per.topic ({most})",
            )

    def _check_assignment(self, new: CreatableTopic) -> list[tuple[BrokerId, ...]]:
        if new.partitions != USE_DEFAULT or new.replication_factor != USE_DEFAULT:
            raise BrokerError(
                ErrorCode.invalid_request,
                "with assigned replicas, the number of partitions and the replication factor must be -1",
            )
        by_partition = dict(new.assignment)
        if len(by_partition) < len(new.assignment) or set(by_partition) != set(range(len(by_partition))):
            raise BrokerError(
                ErrorCode.invalid_replica_assignment, "assign each partition from 0 up exactly once"
            )
        self._check_partition_count(len(by_partition))
        ordered = [by_partition[index] for index in range(len(by_partition))]
        return [self._check_replicas(replicas, len(ordered[0])) for replicas in ordered]

    def _check_added(
        self, assignment: Sequence[Sequence[int]], count: int, replication_factor: int
    ) -> list[tuple[BrokerId, ...]]:
        if len(assignment) != count:
            raise BrokerError(
                ErrorCode.invalid_replica_assignment,
                f"{count} partitions are added, but {len(assignment)} are assigned",
            )
        return [self._check_replicas(replicas, replication_factor) for replicas in assignment]

    def _check_replicas(self, replicas: Sequence[int], count: int) -> tuple[BrokerId, ...]:
        if not replicas or len(replicas) != count or len(set(replicas)) != count:
            raise BrokerError(
                ErrorCode.invalid_replica_assignment,
                "each partition needs the same number of different brokers",
            )
        for replica in replicas:
            if replica not in self._known_brokers:
                raise BrokerError(ErrorCode.invalid_replica_assignment, f"there is no broker {replica}")
        if not any(replica in self._image.brokers for replica in replicas):
            raise BrokerError(
                ErrorCode.invalid_replica_assignment,
                f"none of the brokers {', '.join(map(str, replicas))} is alive",
            )
        return tuple(map(BrokerId, replicas))

    def _reserve(self, placement: Sequence[tuple[BrokerId, ...]]) -> None:
        """Count the planned replicas. Raises BrokerError if a broker would exceed max.partitions.per.broker."""
        added = Counter(replica for replicas in placement for replica in replicas)
        most = self._config[MAX_PARTITIONS_PER_BROKER]
        for broker_id, count in added.items():
            if broker_id not in self._replicas:
                self._replicas[broker_id] = self._image.replica_count(broker_id)
            if self._replicas[broker_id] + count > most:
                raise BrokerError(
                    ErrorCode.policy_violation,
                    f"broker {broker_id} would hold more than max.partitions.per.broker ({most})",
                )
        self._replicas += added

    def _first_state(self, replicas: tuple[BrokerId, ...]) -> PartitionState:
        present = tuple(replica for replica in replicas if replica in self._image.brokers)
        return PartitionState(present[0], LeaderEpoch(0), replicas, present, partition_epoch=0)


def _not_an_increase(topic: TopicImage, total: int) -> BrokerError:
    count, present = topic.active_count, len(topic.partitions)
    alter = f"`penstock topic alter {topic.name} --partitions {min(total, present)}`"
    if total > present:
        next_step = f"{alter} keeps the partitions that are being removed; do that first"
    else:
        next_step = f"{alter} keeps some of them" if total > count else f"{alter} removes partitions"
    return BrokerError(
        ErrorCode.invalid_partitions,
        f"topic {topic.name} has {count} partitions; {total} would not be an increase: {next_step}",
    )
