"""Queues of a cluster: create, list, describe, alter, purge and delete them.

A queue is a share group with the config `share.queue.topic`. Its settings are group configs, so that Kafka's
tools can show and change them. A share consumer whose group id is the name of the queue consumes from the
queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from penstock.config import (
    DELIVERY_DELAY,
    SHARE_AUTO_OFFSET_RESET,
    SHARE_ISOLATION_LEVEL,
    SHARE_QUEUE_TOPIC,
)
from penstock.config.resources import ConfigResourceType
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.configs import Changes, ConfigCalls
from penstock.internal_client.groups import GroupCalls
from penstock.internal_client.inspection import InspectionCalls
from penstock.internal_client.queue_retention import (
    RETAIN_CONFIGS,
    check_policy,
    not_its_own,
    retain_configs,
    retain_text,
)
from penstock.internal_client.queue_values import SETTINGS as SETTINGS
from penstock.internal_client.queue_values import NewQueue as NewQueue
from penstock.internal_client.queue_values import QueueDetails as QueueDetails
from penstock.internal_client.queue_values import QueuePartition as QueuePartition
from penstock.internal_client.queue_values import QueueSummary as QueueSummary
from penstock.internal_client.queue_values import queue_partition
from penstock.internal_client.queue_views import Part, QueueViews
from penstock.internal_client.records import EARLIEST, LATEST, RecordCalls
from penstock.internal_client.routes import Routes
from penstock.internal_client.share_groups import ShareGroupCalls
from penstock.internal_client.topics import NewTopic, TopicCalls
from penstock.net.acting import own_requests

_NAMES_PER_REQUEST: Final = 100
_KNOWN_SECONDS: Final = 5.0
_MAX_KNOWN: Final = 10_000


class QueueCalls:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._topics = TopicCalls(routes)
        self._configs = ConfigCalls(routes)
        self._records = RecordCalls(routes)
        self._groups = GroupCalls(routes, self._records)
        self._share_groups = ShareGroupCalls(routes)
        self._inspection = InspectionCalls(routes)
        self._views = QueueViews(self._topics, self._configs)
        self._known: dict[str, tuple[float, QueueSummary]] = {}
        """Queues by name, each with the monotonic time at which it was read."""

    async def all(self) -> list[QueueSummary]:
        """Read every queue, sorted by name."""
        names = await self._configs.names(ConfigResourceType.GROUP)
        found: list[QueueSummary] = []
        for start in range(0, len(names), _NAMES_PER_REQUEST):
            summaries = await self._summaries(names[start : start + _NAMES_PER_REQUEST])
            found += await self._with_filters([each for each in summaries if each.topic])
        return found

    async def get(self, name: str) -> QueueSummary:
        """Read one queue. Raises GROUP_ID_NOT_FOUND if it does not exist."""
        [found] = await self._summaries([name])
        if not found.topic:
            raise BrokerError(
                ErrorCode.group_id_not_found,
                f"there is no queue {name[:80]!r}; `penstock queue create {name[:80]}` creates it",
            )
        [found] = await self._with_filters([found])
        return found

    async def _with_filters(self, queues: Sequence[QueueSummary]) -> list[QueueSummary]:
        """Return the queues with the filters of the views that they read."""
        parts = await self._views.parts(each.topic for each in queues)
        return [
            each if (part := parts.get(each.topic)) is None else replace(each, of=part.of, filter=part.filter)
            for each in queues
        ]

    async def get_known(self, name: str) -> QueueSummary:
        """Return one queue as it was read up to a few seconds ago."""
        now = asyncio.get_running_loop().time()
        known = self._known.get(name)
        if known is None or now - known[0] > _KNOWN_SECONDS:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()  # Names come from clients, in any number.
            known = self._known[name] = (now, await self.get(name))
        return known[1]

    async def _summaries(self, names: Sequence[str]) -> list[QueueSummary]:
        options = [SHARE_QUEUE_TOPIC.name, *SETTINGS.values()]
        with own_requests():  # The gateway checks whether its client may use the queue.
            described = await self._configs.describe(ConfigResourceType.GROUP, names, options)
        found = []
        for name in names:
            values = {each.name: each.value or "" for each in described[name]}
            found.append(
                QueueSummary(
                    name,
                    values[SHARE_QUEUE_TOPIC.name],
                    int(values[SETTINGS["lock_ms"]]),
                    int(values[SETTINGS["max_attempts"]]),
                    values[SETTINGS["back_off"]],
                    values[SETTINGS["dead_letter"]],
                    order=values[SETTINGS["order"]],
                    priorities=values[SETTINGS["priorities"]] == "true",
                    priority_share=float(values[SETTINGS["priority_share"]]),
                    max_length=int(values[SETTINGS["max_length"]]),
                    max_length_policy=values[SETTINGS["max_length_policy"]],
                )
            )
        return found

    async def describe(self, name: str) -> QueueDetails:
        """Describe a queue with the state of its partitions."""
        summary = await self.get(name)
        served = {
            each.partition: each
            for each in await self._share_groups.status(name)
            if each.topic == summary.topic
        }
        partitions = [
            queue_partition(each.partition, each.start_offset, each.lag, served.get(each.partition))
            for each in await self._share_groups.offsets(name)
            if each.topic == summary.topic
        ]
        try:
            kept_by = await self._inspection.retention_reasons(summary.sent_to)
        except (BrokerError, OSError):
            kept_by = {}  # The user may not describe the topic, or a broker does not respond.
        ordered = tuple(sorted(partitions, key=lambda each: each.partition))
        return QueueDetails(summary, ordered, kept_by, await self._retain(summary.sent_to))

    async def _retain(self, topic: str) -> str:
        with own_requests():  # For a topic of its own, this is a setting of the queue.
            found = await self._configs.describe(
                ConfigResourceType.TOPIC, [topic], RETAIN_CONFIGS, skips_refused=True
            )
        return retain_text({each.name: each.value for each in found[topic]}) if topic in found else ""

    # --- changes

    async def create(self, queue: NewQueue) -> QueueSummary:
        """Create a queue. Each step can be repeated, so repeating an interrupted creation completes it."""
        [known] = await self._summaries([queue.name])
        topic = queue.topic
        if known.topic:
            raise BrokerError(
                ErrorCode.duplicate_resource,
                f"there is a queue {queue.name!r} already, of topic {known.topic!r}",
            )
        if queue.of is not None and queue.retain:
            raise not_its_own(queue.name, queue.of)
        dead_letter = queue.settings.get("dead_letter", "")
        check_policy(queue.settings.get("max_length_policy"), dead_letter)
        await self._check_dead_letter(queue.of or topic, dead_letter)
        changes: dict[str, str | None] = {SETTINGS[name]: value for name, value in queue.settings.items()}
        # The settings are checked first, so that a refused setting leaves no topics behind. The dead-letter
        # topic is created below.
        checked = {name: value for name, value in changes.items() if name != SETTINGS["dead_letter"]}
        await self._configs.check(ConfigResourceType.GROUP, queue.name, checked)
        if queue.of is None:
            await self._create_topic(queue)
        elif queue.filter:
            await self._views.create(queue.name, Part(queue.of, queue.filter))
        await self._make_dead_letter_topic(topic, dead_letter)
        start = LATEST if queue.is_from_end else EARLIEST
        partitions = range(len((await self._topics.get(topic, fresh=True)).partitions))
        offsets = await self._records.offsets(topic, partitions, start)
        changes[SHARE_AUTO_OFFSET_RESET.name] = "earliest"
        # A redrive that is interrupted aborts its transaction, and the queue must not deliver the aborted
        # copies.
        changes[SHARE_ISOLATION_LEVEL.name] = "read_committed"
        await self._configs.alter(ConfigResourceType.GROUP, queue.name, changes, may_repeat=True)
        await self._share_groups.reset(
            queue.name, {(topic, partition): offset for partition, offset in offsets.items()}
        )
        # This is the last step: from now on the queue exists.
        mark: Changes = {SHARE_QUEUE_TOPIC.name: topic}
        await self._configs.alter(ConfigResourceType.GROUP, queue.name, mark, may_repeat=True)
        return await self.get(queue.name)

    async def _create_topic(self, queue: NewQueue) -> None:
        retained = {name: value for name, value in retain_configs(queue.retain).items() if value is not None}
        configs = {DELIVERY_DELAY.name: "true", **retained}
        topic = NewTopic(queue.name, queue.partitions, queue.replication_factor, configs)
        try:
            await self._topics.create(topic)
        except BrokerError as error:
            if error.code is not ErrorCode.topic_already_exists:
                raise
            raise BrokerError(
                error.code,
                f"there is a topic {queue.name!r} already; create a queue of it with `--of {queue.name}` (HTTP: `of`)",
            ) from None

    async def _check_dead_letter(self, topic: str, dead_letter: str) -> None:
        """Refuse a dead-letter topic that is internal or whose own queues lead back to this topic by their
        dead letters.
        """
        if not dead_letter:
            return
        if dead_letter.startswith("__"):
            raise _wrong_dead_letter(dead_letter, "internal topics hold no dead letters")
        leads_to = {each.sent_to: each.dead_letter for each in await self.all() if each.dead_letter}
        seen = {topic}
        place = dead_letter
        while place:
            if place in seen:
                what = (
                    "it is the queue's own topic"
                    if place == dead_letter
                    else f"the dead letters of {place} return to {topic}"
                )
                raise _wrong_dead_letter(dead_letter, f"{what}, so that messages would circulate forever")
            seen.add(place)
            place = leads_to.get(place, "")

    async def _make_dead_letter_topic(self, topic: str, dead_letter: str) -> None:
        """Create the dead-letter topic unless it exists, with as many partitions as the topic."""
        if not dead_letter:
            return
        partitions = len((await self._topics.get(topic, fresh=True)).partitions)
        try:
            await self._topics.create(NewTopic(dead_letter, partitions))
        except BrokerError as error:
            if error.code is not ErrorCode.topic_already_exists:
                raise

    async def alter(
        self, name: str, settings: Mapping[str, str | None], filter_text: str = "", retain: str = ""
    ) -> QueueSummary:
        """Change settings, by the names of `SETTINGS`, and the filter. None returns a setting to its default.

        `retain` is as in `NewQueue`.
        """
        queue, dead_letter = await self.get(name), settings.get("dead_letter") or ""
        check_policy(
            settings.get("max_length_policy", queue.max_length_policy),
            settings.get("dead_letter", queue.dead_letter),
        )
        await self._check_dead_letter(queue.sent_to, dead_letter)
        if filter_text:
            await self._views.set_filter(name, queue.topic, filter_text)
        if retain:
            if queue.topic != name or queue.filter:
                raise not_its_own(name, queue.sent_to)
            await self._configs.alter(ConfigResourceType.TOPIC, name, retain_configs(retain), may_repeat=True)
        await self._make_dead_letter_topic(queue.topic, dead_letter)
        self._known.pop(name, None)
        changes = {SETTINGS[setting]: value for setting, value in settings.items()}
        if changes:
            await self._configs.alter(ConfigResourceType.GROUP, name, changes, may_repeat=True)
        return await self.get(name)

    async def purge(self, name: str) -> int:
        """Settle all messages of the queue and return their number. Raises NON_EMPTY_GROUP while it has share
        consumers.
        """
        details = await self.describe(name)
        topic = details.summary.topic
        partitions = range(len((await self._topics.get(topic, fresh=True)).partitions))
        ends = await self._records.offsets(topic, partitions, LATEST)
        await self._share_groups.reset(
            name, {(topic, partition): offset for partition, offset in ends.items()}
        )
        return details.depth

    async def delete(self, name: str, *, keeps_topic: bool = False) -> None:
        """Delete a queue, and its topic if the topic has the name of the queue. An interrupted deletion can
        be repeated.
        """
        self._known.pop(name, None)
        queue = await self.get(name)
        await self._delete_group(name)
        if queue.topic == name and not keeps_topic:
            try:
                await self._topics.delete(name)
            except BrokerError as error:
                if error.code is not ErrorCode.unknown_topic_or_partition:
                    raise
        removed: dict[str, str | None] = dict.fromkeys(SETTINGS.values())
        removed |= {
            SHARE_QUEUE_TOPIC.name: None,
            SHARE_AUTO_OFFSET_RESET.name: None,
            SHARE_ISOLATION_LEVEL.name: None,
        }
        with own_requests():  # The right to delete the group is sufficient.
            await self._configs.alter(ConfigResourceType.GROUP, name, removed, may_repeat=True)
        await self._delete_group(name)  # A receive may have created it again meanwhile.

    async def _delete_group(self, name: str) -> None:
        try:
            await self._groups.delete(name)
        except BrokerError as error:
            if error.code is not ErrorCode.group_id_not_found:
                raise


def _wrong_dead_letter(dead_letter: str, reason: str) -> BrokerError:
    return BrokerError(
        ErrorCode.invalid_config,
        f"{dead_letter} cannot be the dead-letter topic: {reason}; name another topic",
    )
