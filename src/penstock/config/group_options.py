"""Every setting of a broker that is about consumer groups and their offsets. Kafka's names for Kafka's settings."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from penstock.config.options import Group, Option, table
from penstock.config.types import INT_MAX, LONG_MAX, Choice, Integer, ListOf


class GroupMigrationPolicy(StrEnum):
    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"


class ServerAssignor(StrEnum):
    UNIFORM = "uniform"
    RANGE = "range"


CONSUMER_GROUPS = Group("Consumer groups")
GROUP_INITIAL_REBALANCE_DELAY_MS: Option[int] = CONSUMER_GROUPS.option(
    "group.initial.rebalance.delay.ms",
    Integer(0, INT_MAX),
    250,
    "How long the first rebalance of an empty group waits for more members; each that arrives prolongs it, up to the "
    "rebalance timeout.",
    dynamic=True,
)
GROUP_MIN_SESSION_TIMEOUT_MS: Option[int] = CONSUMER_GROUPS.option(
    "group.min.session.timeout.ms",
    Integer(1, INT_MAX),
    6_000,
    "A member that asks for a shorter session is refused with INVALID_SESSION_TIMEOUT.",
    dynamic=True,
)
GROUP_MAX_SESSION_TIMEOUT_MS: Option[int] = CONSUMER_GROUPS.option(
    "group.max.session.timeout.ms",
    Integer(1, INT_MAX),
    1_800_000,
    "A member that asks for a longer session is refused with INVALID_SESSION_TIMEOUT.",
    dynamic=True,
)
GROUP_MAX_SIZE: Option[int] = CONSUMER_GROUPS.option(
    "group.max.size",
    Integer(1, INT_MAX),
    20_000,
    "The most members of a group; further ones are refused with GROUP_MAX_SIZE_REACHED.",
    dynamic=True,
)
GROUP_MAX_METADATA_BYTES: Option[int] = CONSUMER_GROUPS.option(
    "group.max.metadata.bytes",
    Integer(1_024, INT_MAX),
    33_554_432,
    "The most that the members of one group together may say about themselves (subscriptions, assignments); beyond it "
    "a join is refused with GROUP_MAX_SIZE_REACHED.",
    dynamic=True,
)
GROUP_CONSUMER_ASSIGNORS: Option[tuple[ServerAssignor, ...]] = CONSUMER_GROUPS.option(
    "group.consumer.assignors",
    ListOf(ServerAssignor),
    tuple(ServerAssignor),
    "The assignors that members of the new protocol (KIP-848) may ask for; `uniform`, where it is one of them, is the "
    "default.",
)
GROUP_CONSUMER_SESSION_TIMEOUT_MS: Option[int] = CONSUMER_GROUPS.option(
    "group.consumer.session.timeout.ms",
    Integer(1, INT_MAX),
    45_000,
    "A member of the new protocol that is silent for this long is out. A group may have its own: "
    "`consumer.session.timeout.ms`.",
    dynamic=True,
)
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS: Option[int] = CONSUMER_GROUPS.option(
    "group.consumer.heartbeat.interval.ms",
    Integer(1, INT_MAX),
    5_000,
    "How often members of the new protocol are told to report. A group may have its own: "
    "`consumer.heartbeat.interval.ms`.",
    dynamic=True,
)
GROUP_CONSUMER_MIGRATION_POLICY: Option[GroupMigrationPolicy] = CONSUMER_GROUPS.option(
    "group.consumer.migration.policy",
    Choice(GroupMigrationPolicy),
    GroupMigrationPolicy.BIDIRECTIONAL,
    "Whether a group with members may change from the classic protocol to the new one (`upgrade`), back "
    "(`downgrade`), both, or neither.",
)
OFFSET_METADATA_MAX_BYTES: Option[int] = CONSUMER_GROUPS.option(
    "offset.metadata.max.bytes",
    Integer(0, INT_MAX),
    4_096,
    "A commit with a longer note beside the offset is refused with OFFSET_METADATA_TOO_LARGE.",
    dynamic=True,
)
OFFSETS_COMMIT_TIMEOUT_MS: Option[int] = CONSUMER_GROUPS.option(
    "offsets.commit.timeout.ms",
    Integer(1, INT_MAX),
    5_000,
    "A commit that is not durable after this long is answered with REQUEST_TIMED_OUT; it may still become so.",
    dynamic=True,
)
OFFSETS_RETENTION_MINUTES: Option[int] = CONSUMER_GROUPS.option(
    "offsets.retention.minutes",
    Integer(1, INT_MAX),
    10_080,
    "Offsets are forgotten this long after their group became empty or stopped reading the topic, but never before "
    "the topic's own retention has passed.",
    dynamic=True,
)
OFFSETS_RETENTION_CHECK_INTERVAL_MS: Option[int] = CONSUMER_GROUPS.option(
    "offsets.retention.check.interval.ms",
    Integer(1, LONG_MAX),
    600_000,
    "How often the broker looks for offsets to forget.",
    dynamic=True,
)
OFFSETS_TOPIC_NUM_PARTITIONS: Option[int] = CONSUMER_GROUPS.option(
    "offsets.topic.num.partitions",
    Integer(1, 10_000),
    50,
    "The partitions of `__consumer_offsets`, set when the first group is seen and not changed afterwards: each group "
    "belongs to one of them.",
)
OFFSETS_TOPIC_REPLICATION_FACTOR: Option[int] = CONSUMER_GROUPS.option(
    "offsets.topic.replication.factor",
    Integer(-1, 32_767),
    -1,
    "The copies of `__consumer_offsets`; while fewer brokers are known it is not made, and groups wait. -1: as of any "
    "other topic.",
)
OFFSETS_TOPIC_SEGMENT_BYTES: Option[int] = CONSUMER_GROUPS.option(
    "offsets.topic.segment.bytes",
    Integer(1_048_576, INT_MAX),
    16_777_216,
    "The size of a segment of `__consumer_offsets`. Small ones are compacted sooner, so that a coordinator has less to "
    "read when it starts.",
)

GROUP_SETTINGS = Group("Settings of a group")
CONSUMER_SESSION_TIMEOUT_MS: Option[int] = GROUP_SETTINGS.option(
    "consumer.session.timeout.ms",
    Integer(1, INT_MAX),
    45_000,
    "A member of the new protocol that is silent for this long is out.",
    synonym=GROUP_CONSUMER_SESSION_TIMEOUT_MS,
)
CONSUMER_HEARTBEAT_INTERVAL_MS: Option[int] = GROUP_SETTINGS.option(
    "consumer.heartbeat.interval.ms",
    Integer(1, INT_MAX),
    5_000,
    "How often members of the new protocol are told to report.",
    synonym=GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
)

GROUP_OPTIONS: Mapping[str, Option[Any]] = table(GROUP_SETTINGS.options)
