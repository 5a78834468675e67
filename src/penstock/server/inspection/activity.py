"""Question for changes that this broker knows: in topics of the cluster, logs that it leads, and groups that it
coordinates.

A gateway follows the changes of every broker, and so knows sizes, rates and consumer lag of all topics without a
request for each topic. Nothing runs while no gateway asks. A refresh checks every log and group, in slices and at most
twice a second. Topics are compared by identity, because a new cluster image shares unchanged topics with the old one.
Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

from penstock.cluster.image import NO_LEADER, ClusterImage, TopicImage
from penstock.cluster.internal_topics import is_internal
from penstock.config import CLEANUP_POLICY, RETENTION_BYTES, RETENTION_MS, BrokerConfig, TopicConfig
from penstock.internal_client.slices import in_slices
from penstock.model import TopicPartition
from penstock.replication.replica import Replica
from penstock.server.context import BrokerContext
from penstock.server.inspection.change_journal import ChangeJournal, JournalChange
from penstock.server.inspection.question import Arguments, Question, integer
from penstock.server.security import Operation
from penstock.storage.segment import Segment

MAX_CHANGES = 2_000
"""Maximum number of changes of each kind in one answer."""
MAX_ALARMS = 50
REFRESH_SECONDS = 0.5
LOGS_PER_STEP = 32
"""Number of logs that are compared between two checks of the time that a slice may take."""

Row = tuple[Any, ...]


class Activity:
    """Journals of the changes on this broker, created at the first question."""

    def __init__(self, context: BrokerContext) -> None:
        self.epoch = context.random.getrandbits(48)
        """Random id of these journals. Versions that a gateway has from journals with another id, such as those before
        a restart, are invalid.
        """
        self.topics: ChangeJournal[str, Row] = ChangeJournal()
        self.logs: ChangeJournal[TopicPartition, Row] = ChangeJournal()
        self.groups: ChangeJournal[str, Row] = ChangeJournal()
        self._context = context
        self._topic_images: dict[str, TopicImage] = {}
        self._segments: dict[TopicPartition, tuple[Segment, ...]] = {}
        """Segments of each log when its sizes were last put into the journal."""
        self._image: ClusterImage | None = None
        self._refreshed = float("-inf")
        self._refreshing: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Bring the journals up to date; concurrent callers share one refresh."""
        if self._refreshing is None:
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
            self._refreshing.add_done_callback(self._on_refreshed)
        await asyncio.shield(self._refreshing)

    def _on_refreshed(self, done: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not done.cancelled():
            done.exception()

    async def _refresh(self) -> None:
        context = self._context
        if context.image is not self._image:
            self._image = context.image
            await in_slices(self._compare_topics(context.image))
        now = context.clock.monotonic()
        if now - self._refreshed >= REFRESH_SECONDS:
            self._refreshed = now
            await in_slices(self._compare_logs())
            await in_slices(self._compare_groups())

    def _compare_topics(self, image: ClusterImage) -> Generator[None, None, None]:
        known = self._topic_images
        for name, topic in image.topics.items():
            if known.get(name) is not topic:
                known[name] = topic
                self.topics.put(name, _topic_row(topic, self._context.config))
            yield
        if len(known) > len(image.topics):
            for name in [name for name in known if name not in image.topics]:
                del known[name]
                self.topics.remove(name)
                yield

    def _compare_logs(self) -> Generator[None, None, None]:
        led = set()
        for place, replica in enumerate(list(self._context.replicas)):
            if replica.partition.is_leader:
                name = replica.name
                led.add(name)
                if self._has_moved(name, replica):
                    self._segments[name] = replica.log.segments
                    self.logs.put(name, _log_row(replica))
            if place % LOGS_PER_STEP == 0:
                yield
        if len(self.logs) > len(led):
            for name in self.logs.keys():  # noqa: SIM118 - a journal is no mapping
                if name not in led:
                    self.logs.remove(name)
                    self._segments.pop(name, None)
                yield

    def _has_moved(self, name: TopicPartition, replica: Replica) -> bool:
        """True if offsets or segments of a log differ from the journal; only then its size has to be computed."""
        log, known = replica.log, self.logs.get(name)
        return (
            known is None
            or known[1] != log.high_watermark
            or known[0] != log.log_start_offset
            or self._segments.get(name) is not log.segments
        )

    def _compare_groups(self) -> Generator[None, None, None]:
        seen = set()
        image = self._context.image
        for shard in self._context.groups.shards:
            for group_id in list(shard.groups):
                group = shard.groups.get(group_id)
                if group is not None:
                    seen.add(group_id)
                    offsets: dict[str, dict[int, int]] = {
                        topic: {} for topic in group.topics if topic in image.topics
                    }
                    for partition, value in shard.offsets.fetch(group_id, None, image).items():
                        offsets.setdefault(partition.topic, {})[partition.partition] = value.offset
                    row = (str(group.kind), str(group.state), group.member_count, offsets)
                    self.groups.put(group_id, row)
                yield
        if len(self.groups) > len(seen):
            for group_id in self.groups.keys():  # noqa: SIM118
                if group_id not in seen:
                    self.groups.remove(group_id)


def _topic_row(topic: TopicImage, config: BrokerConfig) -> Row:
    settings = TopicConfig(config, topic.configs)
    policies = sorted(str(policy) for policy in settings[CLEANUP_POLICY])
    return (
        str(topic.id),
        len(topic.partitions),
        max((len(state.final_replicas) for state in topic.partitions), default=0),
        is_internal(topic.name),
        sum(len(state.isr) < len(state.replicas) for state in topic.partitions),
        sum(state.leader == NO_LEADER for state in topic.partitions),
        settings[RETENTION_MS],
        settings[RETENTION_BYTES],
        ",".join(policies),
    )


def _log_row(replica: Replica) -> Row:
    log = replica.log
    return log.log_start_offset, log.high_watermark, log.size_bytes


async def _answer(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    if context.activity is None:
        context.activity = Activity(context)
    activity: Activity = context.activity
    await activity.refresh()
    is_known = integer(arguments, "epoch") == activity.epoch
    answer: dict[str, Any] = {"epoch": activity.epoch, "broker": _broker(context)}
    for name, journal in (("topics", activity.topics), ("logs", activity.logs), ("groups", activity.groups)):
        version = integer(arguments, name, -1)
        if version >= 0:
            answer[name] = _changes(journal, version if is_known else 0)
    return answer


def _changes(journal: ChangeJournal[Any, Row], version: int) -> dict[str, Any]:
    starts_over = version < journal.first_complete
    changes, reached = journal.since(0 if starts_over else version, MAX_CHANGES)
    return {
        "all": starts_over or version == 0,
        "version": reached,
        "complete": reached == journal.version,
        "changes": [_shown(change) for change in changes],
    }


def _shown(change: JournalChange[Any, Row]) -> tuple[Any, Row | None]:
    key = change.key
    return ((key.topic, key.partition) if isinstance(key, TopicPartition) else key), change.value


def _broker(context: BrokerContext) -> dict[str, Any]:
    alarms = context.alarms.present
    traffic = context.traffic
    return {
        "partitions": len(context.replicas),
        "connections": len(context.connections),
        "received_bytes": 0 if traffic is None else traffic.received_bytes,
        "sent_bytes": 0 if traffic is None else traffic.sent_bytes,
        "requests": sum(sum(each.counts) for each in context.metrics.requests.values()),
        "free_bytes": context.disk.free_bytes(),
        "disk_full": context.logs.full,
        "is_loading_groups": context.groups.is_loading,
        "alarms": [
            [str(each.kind), str(each.partition), each.detail, each.since_ms] for each in alarms[:MAX_ALARMS]
        ],
        "alarm_count": len(alarms),
    }


ACTIVITY = Question("activity", Operation.DESCRIBE, _answer)
