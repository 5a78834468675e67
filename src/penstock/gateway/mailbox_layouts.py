"""Layouts of the mailboxes: the partition counts in use over time, which all gateways share through a config
of the topic.

After partitions were added or removed, one gateway writes the time from which the new count is used. This time is some
seconds ahead, so that the other gateways have read it by then. From that time on no message is sent under the old
count. Messages in flight under the old count are acknowledged for one more second, and sends under the new count begin
another second later. If the clocks of the gateways differ by less than a second, all messages of a user under one
count are older than the messages under the next.

Layouts are read again periodically while they are used; outdated layouts are not used for sending. Loop thread only.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from penstock.clock import Clock
from penstock.config import INDEX_BY_KEY, INDEX_KEY_LAYOUTS, MAILBOX_NUM_PARTITIONS, BrokerConfig
from penstock.config.key_layouts import KeyLayout, KeyLayouts, with_layout
from penstock.config.resources import ConfigResourceType
from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.backend import Backend
from penstock.internal_client.partitioner import partition_for
from penstock.internal_client.topic_routes import TopicRoute
from penstock.internal_client.topics import NewTopic
from penstock.model import TopicId

TOPIC = "mailbox"
FRESH_SECONDS = 2.0
STALE_SECONDS = 5.0
SETTLE_MS = 10_000
ACKNOWLEDGED_MS = 1_000
"""Time in milliseconds after the start of a new layout for which messages that were sent under the old one are
still acknowledged.
"""
BEGIN_MS = 2_000
"""Time in milliseconds between the start of a new layout and the first send under it."""


@dataclass(frozen=True, slots=True)
class LayoutView:
    topic_id: TopicId
    layouts: KeyLayouts
    """Layouts, oldest first; at least one."""
    present: int = 1 << 16
    """Number of partitions of the topic, including partitions that are being removed."""

    def has_place(self, layout: KeyLayout, user: bytes) -> bool:
        """True if the partition of the user under a layout exists. It may have been removed, after its last record
        has expired.
        """
        return partition_for(user, layout.partitions) < self.present

    def current(self, now_ms: int) -> KeyLayout:
        last = self.layouts[-1]
        if last.since_ms <= now_ms:
            return last
        return next(layout for layout in reversed(self.layouts) if layout.since_ms <= now_ms)

    def is_over(self, layout: KeyLayout, now_ms: int) -> bool:
        """True if messages that were sent under the layout are no longer acknowledged."""
        if layout.number == self.layouts[-1].number:
            return False
        later = [each.since_ms for each in self.layouts if each.number > layout.number]
        return bool(later) and now_ms >= later[0] + ACKNOWLEDGED_MS


def begins_in_ms(layout: KeyLayout, now_ms: int) -> int:
    """Return the time in milliseconds until messages may be sent under a layout; 0 or less if they may be sent now."""
    return layout.since_ms + BEGIN_MS - now_ms if layout.since_ms else 0


class MailboxLayouts:
    def __init__(self, backend: Backend, config: BrokerConfig, clock: Clock) -> None:
        self._backend = backend
        self._partitions = config[MAILBOX_NUM_PARTITIONS]
        self._clock = clock
        self._view: LayoutView | None = None
        self._read_at = 0.0
        self._reading: asyncio.Task[LayoutView] | None = None

    async def view(self) -> LayoutView:
        """Return layouts that are at most a few seconds old. Creates the topic if it does not exist."""
        known = self.known()
        if known is not None:
            return known
        assert self._reading is not None
        return await asyncio.shield(self._reading)

    def known(self) -> LayoutView | None:
        """Return layouts that are at most a few seconds old; None if they have to be read first."""
        view, age = self._view, self._clock.monotonic() - self._read_at
        if view is not None and age < FRESH_SECONDS:
            return view
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())
            self._reading.add_done_callback(self._on_read)
        return view if age < STALE_SECONDS else None

    def forget(self) -> None:
        """Drop the layouts, because the topic was deleted and created again."""
        self._view = None

    def _on_read(self, reading: asyncio.Task[LayoutView]) -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> LayoutView:
        asked_at = self._clock.monotonic()
        topic = await self._topic()
        layouts, is_indexed = await self._configured()
        count = topic.active_count
        if not layouts:
            layouts = (KeyLayout(count, 0),)
            await self._write(layouts)
        elif count != layouts[-1].partitions:
            since_ms = max(self._clock.now_ms() + SETTLE_MS, layouts[-1].since_ms + SETTLE_MS)
            layouts = with_layout(layouts, count, since_ms)
            await self._write(layouts)
        if not is_indexed:
            await self._backend.configs.alter(ConfigResourceType.TOPIC, TOPIC, {INDEX_BY_KEY.name: "true"})
        self._view, self._read_at = LayoutView(topic.id, layouts, len(topic.partitions)), asked_at
        return self._view

    async def _topic(self) -> TopicRoute:
        try:
            return await self._backend.topics.get(TOPIC, fresh=True)
        except BrokerError as error:
            if error.code is not ErrorCode.unknown_topic_or_partition:
                raise
        await self._make()
        return await self._backend.topics.get(TOPIC, fresh=True)

    async def _make(self) -> None:
        configs = {
            INDEX_BY_KEY.name: "true",
            INDEX_KEY_LAYOUTS.name: INDEX_KEY_LAYOUTS.format((KeyLayout(self._partitions, 0),)),
        }
        try:
            await self._backend.topics.create(NewTopic(TOPIC, self._partitions, configs=configs))
        except BrokerError as error:
            # TOPIC_ALREADY_EXISTS: another gateway has just created the topic.
            if error.code is not ErrorCode.topic_already_exists:
                raise

    async def _configured(self) -> tuple[KeyLayouts, bool]:
        entries = await self._backend.configs.get(ConfigResourceType.TOPIC, TOPIC)
        values = {entry.name: entry.value for entry in entries}
        layouts = INDEX_KEY_LAYOUTS.parse(values.get(INDEX_KEY_LAYOUTS.name) or "")
        return layouts, values.get(INDEX_BY_KEY.name) == "true"

    async def _write(self, layouts: KeyLayouts) -> None:
        changes: dict[str, str | None] = {INDEX_KEY_LAYOUTS.name: INDEX_KEY_LAYOUTS.format(layouts)}
        await self._backend.configs.alter(ConfigResourceType.TOPIC, TOPIC, changes)
