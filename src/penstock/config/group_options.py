"""Broker options for consumer groups and their offsets. Kafka's options have Kafka's names."""

from __future__ import annotations

from enum import StrEnum

from penstock.config.options import Option, OptionGroup
from penstock.config.types import INT_MAX, LONG_MAX, Choice, Integer, ListOf


class GroupMigrationPolicy(StrEnum):
    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"


class ServerAssignor(StrEnum):
    UNIFORM = "uniform"
    RANGE = "range"


CONSUMER_GROUPS = OptionGroup("Consumer groups")
GROUP_INITIAL_REBALANCE_DELAY_MS: Option[int] = CONSUMER_GROUPS.option(
    "group.initial.rebalance.delay.ms",
    Integer(0, INT_MAX),
    250,
    "Time that the first rebalance of an empty group waits for more members. Each new member extends it, up "
    "to the rebalance timeout.",
    dynamic=True,
)
GROUP_MIN_SESSION_TIMEOUT_MS: Option[int] = CONSUMER_GROUPS.option(
    "group.min.session.timeout.ms",
    Integer(1, INT_MAX),
    6_000,
    "Minimum session timeout of a group member. A member that requests a shorter one is refused with "
    "INVALID_SESSION_TIMEOUT.",
    dynamic=True,
)
GROUP_MAX_SESSION_TIMEOUT_MS: Option[int] = CONSUMER_GROUPS.option(
    "group.max.session.timeout.ms",
    Integer(1, INT_MAX),
    1_800_000,
    "Maximum session timeout of a group member. A member that requests a longer one is refused with "
    "INVALID_SESSION_TIMEOUT.",
    dynamic=True,
)
GROUP_MAX_SIZE: Option[int] = CONSUMER_GROUPS.option(
    "group.max.size",
    Integer(1, INT_MAX),
    20_000,
    "Maximum number of members of a group. Further ones are refused with GROUP_MAX_SIZE_REACHED.",
    dynamic=True,
)
GROUP_MAX_METADATA_BYTES: Option[int] = CONSUMER_GROUPS.option(
    "group.max.metadata.bytes",
    Integer(1_024, INT_MAX),
    33_554_432,
    "Maximum size of the metadata (subscriptions and assignments) of all members of a group. A join beyond it "
    "is refused with GROUP_MAX_SIZE_REACHED.",
    dynamic=True,
)
GROUP_CONSUMER_ASSIGNORS: Option[tuple[ServerAssignor, ...]] = CONSUMER_GROUPS.option(
    "group.consumer.assignors",
    ListOf(ServerAssignor),
    tuple(ServerAssignor),
    "Assignors that members with the consumer protocol (KIP-848) may use. `uniform` is the default if it is "
    "in the list.",
)
GROUP_CONSUMER_SESSION_TIMEOUT_MS: Option[int] = CONSUMER_GROUPS.option(
    "group.consumer.session.timeout.ms",
    Integer(1, INT_MAX),
    45_000,
    "Session timeout of members with the consumer protocol (KIP-848): a member without a heartbeat for this "
    "long is removed. `consumer.session.timeout.ms` overrides it for a group.",
    dynamic=True,
)
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS: Option[int] = CONSUMER_GROUPS.option(
    "group.consumer.heartbeat.interval.ms",
    Integer(1, INT_MAX),
    5_000,
    "Heartbeat interval of members with the consumer protocol (KIP-848). `consumer.heartbeat.interval.ms` "
    "overrides it for a group.",
    dynamic=True,
)
GROUP_CONSUMER_MIGRATION_POLICY: Option[GroupMigrationPolicy] = CONSUMER_GROUPS.option(
    "group.consumer.migration.policy",
    Choice(GroupMigrationPolicy),
    GroupMigrationPolicy.BIDIRECTIONAL,
    "Whether a group with members may change from the classic to the consumer protocol (`upgrade`), back "
    "(`downgrade`), in both directions or not at all.",
)
OFFSET_METADATA_MAX_BYTES: Option[int] = CONSUMER_GROUPS.option(
    "offset.metadata.max.bytes",
    Integer(0, INT_MAX),
    4_096,
    "Maximum size of the metadata of a committed offset. A commit with more is refused with "
    "OFFSET_METADATA_TOO_LARGE.",
    dynamic=True,
)
OFFSETS_COMMIT_TIMEOUT_MS: Option[int] = CONSUMER_GROUPS.option(
    "offsets.commit.timeout.ms",
    Integer(1, INT_MAX),
    5_000,
    "An offset commit that is not durable after this time gets REQUEST_TIMED_OUT. It may still be stored.",
    dynamic=True,
)
OFFSETS_RETENTION_MINUTES: Option[int] = CONSUMER_GROUPS.option(
    "offsets.retention.minutes",
    Integer(1, INT_MAX),
    10_080,
    "Committed offsets are deleted this long after their group became empty or stopped reading the topic, but "
    "not before the topic's own retention time has passed.",
    dynamic=True,
)
OFFSETS_RETENTION_CHECK_INTERVAL_MS: Option[int] = CONSUMER_GROUPS.option(
    "offsets.retention.check.interval.ms",
    Integer(1, LONG_MAX),
    600_000,
    "Interval at which the broker looks for committed offsets to delete.",
    dynamic=True,
)
OFFSETS_TOPIC_NUM_PARTITIONS: Option[int] = CONSUMER_GROUPS.option(
    "offsets.topic.num.partitions",
    Integer(1, 10_000),
    50,
    "Number of partitions of `__consumer_offsets`. Fixed when the topic is created for the first group, "
    "because each group belongs to one partition.",
)
OFFSETS_TOPIC_REPLICATION_FACTOR: Option[int] = CONSUMER_GROUPS.option(
    "offsets.topic.replication.factor",
    Integer(-1, 32_767),
    -1,
    "Replication factor of `__consumer_offsets`. With fewer brokers in the cluster the topic is not created, "
    "and groups wait. -1 uses the default for topics.",
)
OFFSETS_TOPIC_SEGMENT_BYTES: Option[int] = CONSUMER_GROUPS.option(
    "offsets.topic.segment.bytes",
    Integer(1_048_576, INT_MAX),
    16_777_216,
    "Segment size of `__consumer_offsets`. Small segments are compacted earlier, so that a coordinator has "
    "less to read when it starts.",
)

GROUP_SETTINGS = OptionGroup("Settings of a group")
CONSUMER_SESSION_TIMEOUT_MS: Option[int] = GROUP_SETTINGS.option(
    "consumer.session.timeout.ms",
    Integer(1, INT_MAX),
    45_000,
    "Session timeout of members with the consumer protocol (KIP-848): a member without a heartbeat for this "
    "long is removed.",
    synonym=GROUP_CONSUMER_SESSION_TIMEOUT_MS,
)
CONSUMER_HEARTBEAT_INTERVAL_MS: Option[int] = GROUP_SETTINGS.option(
    "consumer.heartbeat.interval.ms",
    Integer(1, INT_MAX),
    5_000,
    "Heartbeat interval of members with the consumer protocol (KIP-848).",
    synonym=GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
)
