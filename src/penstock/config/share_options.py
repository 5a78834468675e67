"""Broker options for share groups, and the settings of one share group. Kafka's options have Kafka's names.

A group's own settings are bounded by the `min` and `max` options of the broker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from penstock.config.dead_letter_options import (
    DEAD_LETTER_COPY_RECORD_ENABLE as DEAD_LETTER_COPY_RECORD_ENABLE,
)
from penstock.config.dead_letter_options import DEAD_LETTER_TOPIC_NAME as DEAD_LETTER_TOPIC_NAME
from penstock.config.group_options import GROUP_SETTINGS
from penstock.config.options import Option, OptionGroup, table
from penstock.config.retry_backoff import EXPECTED, NO_BACKOFF, RetryBackoff, parse_retry_backoff
from penstock.config.types import (
    INT_MAX,
    LONG_MAX,
    Boolean,
    Choice,
    Fraction,
    Integer,
    MaybeText,
    Optional,
    Parsed,
)

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.\d+)?S)?)?")
_MAX_DURATION_DAYS: Final = 36_500


@dataclass(frozen=True, slots=True)
class ShareOffsetReset:
    """Start offset of a share group in a partition that the group has not read: the `strategy`, and for `by_duration`
    how far back in time reading starts.
    """

    strategy: str
    duration_ms: int = 0
    text: str = ""

    def __str__(self) -> str:
        return self.text or self.strategy


def parse_offset_reset(text: str) -> ShareOffsetReset:
    if text in ("latest", "earliest"):
        return ShareOffsetReset(text)
    strategy, _, duration = text.partition(":")
    match = _DURATION.fullmatch(duration)
    if strategy != "by_duration" or match is None or not any(match.groups()):
        raise ValueError(text)
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    total_seconds = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if total_seconds > _MAX_DURATION_DAYS * 86_400:
        raise ValueError(text)
    return ShareOffsetReset(strategy, total_seconds * 1000, text)


class MaxLengthPolicy(StrEnum):
    REFUSE = "refuse"
    DEAD_LETTER = "dead-letter"


class ShareOrder(StrEnum):
    NONE = "none"
    KEY = "key"


class ShareIsolationLevel(StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


SHARE_GROUPS = OptionGroup("Share groups")
GROUP_SHARE_MAX_SIZE: Option[int] = SHARE_GROUPS.option(
    "group.share.max.size",
    Integer(1, INT_MAX),
    10_000,
    "Maximum number of members of a share group. Further ones are refused with GROUP_MAX_SIZE_REACHED.",
    dynamic=True,
)
GROUP_SHARE_MAX_SHARE_SESSIONS: Option[int] = SHARE_GROUPS.option(
    "group.share.max.share.sessions",
    Integer(1, INT_MAX),
    10_000,
    "Maximum number of share sessions of a broker. At the limit a new session waits, then it is "
    "refused with SHARE_SESSION_LIMIT_REACHED.",
    dynamic=True,
)
GROUP_SHARE_HEARTBEAT_INTERVAL_MS: Option[int] = SHARE_GROUPS.option(
    "group.share.heartbeat.interval.ms",
    Integer(1, INT_MAX),
    5_000,
    "Heartbeat interval of members of share groups. `share.heartbeat.interval.ms` overrides it for a group.",
    dynamic=True,
)
GROUP_SHARE_SESSION_TIMEOUT_MS: Option[int] = SHARE_GROUPS.option(
    "group.share.session.timeout.ms",
    Integer(1, INT_MAX),
    45_000,
    "Session timeout of members of share groups: a member without a heartbeat for this long is removed. "
    "`share.session.timeout.ms` overrides it for a group.",
    dynamic=True,
)
GROUP_SHARE_RECORD_LOCK_DURATION_MS: Option[int] = SHARE_GROUPS.option(
    "group.share.record.lock.duration.ms",
    Integer(1, INT_MAX),
    30_000,
    "Time for which an acquired record is locked. `share.record.lock.duration.ms` overrides it for a group.",
    dynamic=True,
)
GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS: Option[int] = SHARE_GROUPS.option(
    "group.share.min.record.lock.duration.ms",
    Integer(1, INT_MAX),
    1_000,
    "Minimum of `share.record.lock.duration.ms` of a group.",
    dynamic=True,
)
GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS: Option[int] = SHARE_GROUPS.option(
    "group.share.max.record.lock.duration.ms",
    Integer(1, INT_MAX),
    3_600_000,
    "Maximum of `share.record.lock.duration.ms` of a group.",
    dynamic=True,
)
GROUP_SHARE_DELIVERY_COUNT_LIMIT: Option[int] = SHARE_GROUPS.option(
    "group.share.delivery.count.limit",
    Integer(2, 100),
    5,
    "Maximum number of deliveries of a record; then it is archived. `share.delivery.count.limit` overrides it "
    "for a group.",
    dynamic=True,
)
GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT: Option[int] = SHARE_GROUPS.option(
    "group.share.min.delivery.count.limit",
    Integer(2, 100),
    2,
    "Minimum of `share.delivery.count.limit` of a group.",
    dynamic=True,
)
GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT: Option[int] = SHARE_GROUPS.option(
    "group.share.max.delivery.count.limit",
    Integer(2, 100),
    10,
    "Maximum of `share.delivery.count.limit` of a group.",
    dynamic=True,
)
GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS: Option[int] = SHARE_GROUPS.option(
    "group.share.partition.max.record.locks",
    Integer(1, 1_000_000),
    2_000,
    "Maximum number of records of a partition that a share group has acquired at a time. Settled records do "
    "not count. `share.partition.max.record.locks` overrides it for a group.",
    dynamic=True,
)
GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS: Option[int] = SHARE_GROUPS.option(
    "group.share.min.partition.max.record.locks",
    Integer(1, 1_000_000),
    100,
    "Minimum of `share.partition.max.record.locks` of a group.",
    dynamic=True,
)
GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS: Option[int] = SHARE_GROUPS.option(
    "group.share.max.partition.max.record.locks",
    Integer(1, 1_000_000),
    4_000,
    "Maximum of `share.partition.max.record.locks` of a group.",
    dynamic=True,
)
SHARE_STATE_TOPIC_NUM_PARTITIONS: Option[int] = SHARE_GROUPS.option(
    "share.coordinator.state.topic.num.partitions",
    Integer(1, 10_000),
    50,
    "Number of partitions of `__share_group_state`. Fixed when the topic is created for the first share group.",
)
SHARE_STATE_TOPIC_REPLICATION_FACTOR: Option[int] = SHARE_GROUPS.option(
    "share.coordinator.state.topic.replication.factor",
    Integer(-1, 32_767),
    -1,
    "Replication factor of `__share_group_state`. With fewer brokers in the cluster the topic is not created, "
    "and share groups wait. -1 uses the default for topics.",
)
SHARE_STATE_TOPIC_MIN_ISR: Option[int | None] = SHARE_GROUPS.option(
    "share.coordinator.state.topic.min.isr",
    Optional(Integer(1, INT_MAX)),
    None,
    "`min.insync.replicas` of `__share_group_state`, used when the topic is created. If it is not set, it is 2 "
    "with three replicas or more.",
)
SHARE_STATE_TOPIC_SEGMENT_BYTES: Option[int] = SHARE_GROUPS.option(
    "share.coordinator.state.topic.segment.bytes",
    Integer(1_048_576, INT_MAX),
    16_777_216,
    "Segment size of `__share_group_state`. Old segments are deleted when their records are not needed any more.",
)
SHARE_UPDATES_PER_SNAPSHOT: Option[int] = SHARE_GROUPS.option(
    "share.coordinator.snapshot.update.records.per.snapshot",
    Integer(0, INT_MAX),
    500,
    "Number of updates of a share-partition in `__share_group_state` after which a snapshot is written.",
    dynamic=True,
)
SHARE_WRITE_TIMEOUT_MS: Option[int] = SHARE_GROUPS.option(
    "share.coordinator.write.timeout.ms",
    Integer(1, INT_MAX),
    5_000,
    "An acknowledgement that is not durable after this time gets REQUEST_TIMED_OUT. It may still take effect.",
    dynamic=True,
)
SHARE_PRUNE_INTERVAL_MS: Option[int] = SHARE_GROUPS.option(
    "share.coordinator.state.topic.prune.interval.ms",
    Integer(1, INT_MAX),
    300_000,
    "Interval at which the broker writes snapshots of quiet share-partitions and prunes `__share_group_state`.",
    dynamic=True,
)

SHARE_SESSION_TIMEOUT_MS: Option[int] = GROUP_SETTINGS.option(
    "share.session.timeout.ms",
    Integer(1, INT_MAX),
    45_000,
    "Session timeout of members of a share group.",
    synonym=GROUP_SHARE_SESSION_TIMEOUT_MS,
)
SHARE_HEARTBEAT_INTERVAL_MS: Option[int] = GROUP_SETTINGS.option(
    "share.heartbeat.interval.ms",
    Integer(1, INT_MAX),
    5_000,
    "Heartbeat interval of members of a share group.",
    synonym=GROUP_SHARE_HEARTBEAT_INTERVAL_MS,
)
SHARE_RECORD_LOCK_DURATION_MS: Option[int] = GROUP_SETTINGS.option(
    "share.record.lock.duration.ms",
    Integer(1, INT_MAX),
    30_000,
    "Time for which an acquired record is locked. Then the record is delivered again.",
    synonym=GROUP_SHARE_RECORD_LOCK_DURATION_MS,
)
SHARE_DELIVERY_COUNT_LIMIT: Option[int] = GROUP_SETTINGS.option(
    "share.delivery.count.limit",
    Integer(2, 100),
    5,
    "Maximum number of deliveries of a record; then it is archived.",
    synonym=GROUP_SHARE_DELIVERY_COUNT_LIMIT,
)
SHARE_PARTITION_MAX_RECORD_LOCKS: Option[int] = GROUP_SETTINGS.option(
    "share.partition.max.record.locks",
    Integer(1, 1_000_000),
    2_000,
    "Maximum number of records of a partition that the share group has acquired at a time.",
    synonym=GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS,
)
SHARE_RETRY_BACKOFF_MS: Option[RetryBackoff] = GROUP_SETTINGS.option(
    "share.retry.backoff.ms",
    Parsed(parse_retry_backoff, EXPECTED),
    NO_BACKOFF,
    "Time after which a record that was released, or whose lock has expired, is delivered again: a list of delays, "
    "one for each delivery, of which the last one repeats, or `exponential:FIRST:MAXIMUM`. Empty: no delay.",
)
SHARE_QUEUE_TOPIC: Option[str] = GROUP_SETTINGS.option(
    "share.queue.topic",
    MaybeText(),
    "",
    "Topic of the queue with the name of this group. A share group with this setting is a queue: `penstock queue`, "
    "`Queue` and `/v1/queues` use it.",
)
SHARE_MAX_LENGTH: Option[int] = GROUP_SETTINGS.option(
    "share.max.length",
    Integer(0, LONG_MAX),
    0,
    "Maximum number of messages of a queue that are not settled; `share.max.length.policy` says what happens beyond "
    "it. Each broker counts the partitions that it leads. 0: no limit.",
)
SHARE_MAX_LENGTH_POLICY: Option[MaxLengthPolicy] = GROUP_SETTINGS.option(
    "share.max.length.policy",
    Choice(MaxLengthPolicy),
    MaxLengthPolicy.REFUSE,
    "Beyond `share.max.length`, `refuse` refuses records with POLICY_VIOLATION; `dead-letter` takes them and sends the "
    "oldest ones that no consumer holds to the dead-letter topic. Without a dead-letter topic records are refused.",
)
SHARE_AUTO_OFFSET_RESET: Option[ShareOffsetReset] = GROUP_SETTINGS.option(
    "share.auto.offset.reset",
    Parsed(parse_offset_reset, "latest, earliest or by_duration:PnDTnHnMnS"),
    ShareOffsetReset("latest"),
    "Start offset of a share group in a partition that it has not read yet.",
)
SHARE_ISOLATION_LEVEL: Option[ShareIsolationLevel] = GROUP_SETTINGS.option(
    "share.isolation.level",
    Choice(ShareIsolationLevel),
    ShareIsolationLevel.READ_UNCOMMITTED,
    "Whether a share group reads uncommitted and aborted records of transactions.",
)
SHARE_RENEW_ACKNOWLEDGE_ENABLE: Option[bool] = GROUP_SETTINGS.option(
    "share.renew.acknowledge.enable",
    Boolean(),
    True,
    "Whether members may renew the lock of records that they hold.",
)

SHARE_PRIORITY_ENABLE: Option[bool] = GROUP_SETTINGS.option(
    "share.priority.enable",
    Boolean(),
    False,
    "Whether records of a partition are delivered by priority: the highest available level first. The header "
    "`penstock-priority` is the level, a digit from 0 to 9; without it a record is of level 0.",
)
SHARE_PRIORITY_SHARE: Option[float] = GROUP_SETTINGS.option(
    "share.priority.share",
    Fraction(at_most=0.5),
    0.0,
    "With `share.priority.enable`, the share of deliveries that is reserved for records below the highest available "
    "level, the oldest first. 0: records below the highest level wait until no record of a higher level is "
    "available.",
)
SHARE_ORDER: Option[ShareOrder] = GROUP_SETTINGS.option(
    "share.order",
    Choice(ShareOrder),
    ShareOrder.NONE,
    "Order of delivery. `key`: a record is delivered only when all earlier records of its key in the partition are "
    "settled; records without a key have no order. `none`: records of a key may be in flight together.",
)

SHARE_BOUNDS: Final[tuple[tuple[Option[int], Option[int], Option[int]], ...]] = (
    (
        SHARE_RECORD_LOCK_DURATION_MS,
        GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS,
        GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS,
    ),
    (
        SHARE_DELIVERY_COUNT_LIMIT,
        GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT,
        GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT,
    ),
    (
        SHARE_PARTITION_MAX_RECORD_LOCKS,
        GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS,
        GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS,
    ),
)
"""Settings of a group with their minimum and maximum in the broker's config."""

GROUP_OPTIONS: Mapping[str, Option[Any]] = table(GROUP_SETTINGS.options)
"""Settings of a group of any kind."""
