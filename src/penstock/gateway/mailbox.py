"""Mailboxes: messages to users, stored in the topic `mailbox` with the receiving user as key.

A message is acknowledged when it is committed. The messages of one user are delivered in the order of their ids, even
if partitions are added or removed: each partition count that was used is a layout, and a read goes through the layouts,
oldest first (`mailbox_layouts.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace

from penstock.clock import Clock
from penstock.config import BrokerConfig
from penstock.config.key_layouts import KeyLayout
from penstock.errors import BrokerError, ErrorCode
from penstock.gateway import message_id
from penstock.gateway.backend import Backend
from penstock.gateway.http.problems import Problem
from penstock.gateway.mailbox_layouts import TOPIC, LayoutView, MailboxLayouts, begins_in_ms
from penstock.gateway.mailbox_receiving import AwaitedMessages
from penstock.gateway.mailbox_sending import SentMessage
from penstock.gateway.message_id import MailboxMessageId
from penstock.gateway.records import KeyPage, Limits
from penstock.gateway.reply import Reply
from penstock.internal_client.keyed_reads import KeyedRead, RecordDamaged
from penstock.internal_client.partitioner import partition_for
from penstock.records.building import NewRecord
from penstock.records.content import Headers
from penstock.records.iteration import Record

FROM_USER = "from_user"
LAYOUT = "penstock-layout"
IDEMPOTENCY_KEY = "penstock-idempotency-key"
MAX_WAIT_LEG_MS = 10_000
"""Time in milliseconds after which a long poll looks up the user's partition again."""
RETRY_WINDOW_MS = 86_400_000
"""Look-back window for idempotency keys after a change of the partition count, in milliseconds: a retry is compared
with messages that were sent up to this long before the change.
"""
_PAGE = Limits(1_000, 1024 * 1024)


@dataclass(frozen=True, slots=True)
class MailboxMessage:
    id: str
    from_user: str
    to_user: str
    message: str
    time_ms: int


class Mailbox:
    def __init__(self, backend: Backend, config: BrokerConfig, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self._layouts = MailboxLayouts(backend, config, clock)

    async def close(self) -> None:
        await self._layouts.close()

    # --- sending

    async def send(
        self,
        from_user: str,
        to_user: str,
        message: str,
        idempotency_key: str | None,
        delay: Headers = (),
    ) -> str:
        """Send a message, and return its id when it is committed. If a message was sent with the same
        `idempotency_key` before, return the id of that message.
        """
        view, layout = await self._begin()
        record = self._record(layout, from_user, to_user, message, idempotency_key)
        if delay:
            record = replace(record, headers=(*record.headers, *delay))
        if idempotency_key is not None and len(view.layouts) > 1:
            earlier = await self._find_earlier(view, layout, record)
            if earlier is not None:
                return message_id.encode(earlier, view.topic_id, record.key or b"")
        sent: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._submit(view, layout, record, sent, is_alone=idempotency_key is not None)
        return await sent

    def begin_send(
        self, from_user: str, to_user: str, message: str, idempotency_key: str | None, reply: Reply[str]
    ) -> bool:
        """Send a message as `send` does, but without a task. Return False, without sending, if the send would have
        to wait for layouts or to look up the key.
        """
        view = self._layouts.known()
        if view is None or (idempotency_key is not None and len(view.layouts) > 1):
            return False
        now_ms = self._clock.now_ms()
        layout = view.current(now_ms)
        if begins_in_ms(layout, now_ms) > 0:
            return False
        record = self._record(layout, from_user, to_user, message, idempotency_key)
        self._submit(view, layout, record, reply, is_alone=idempotency_key is not None)
        return True

    def _record(
        self, layout: KeyLayout, from_user: str, to_user: str, message: str, idempotency_key: str | None
    ) -> NewRecord:
        headers = [(FROM_USER, from_user.encode()), (LAYOUT, b"%d" % layout.number)]
        if idempotency_key is not None:
            headers.append((IDEMPOTENCY_KEY, idempotency_key.encode()))
        return NewRecord(to_user.encode(), message.encode(), self._clock.now_ms(), tuple(headers))

    def _submit(
        self, view: LayoutView, layout: KeyLayout, record: NewRecord, reply: Reply[str], *, is_alone: bool
    ) -> None:
        user = record.key or b""
        partition = partition_for(user, layout.partitions)
        sent = SentMessage(self._layouts, self._clock, view, layout, partition, user, reply)
        self._backend.records.submit(TOPIC, partition, record, sent, is_alone=is_alone)

    async def _begin(self) -> tuple[LayoutView, KeyLayout]:
        """Return the layout to send under. While one layout is being replaced by another, wait for the new one."""
        while True:
            view = await self._layouts.view()
            now_ms = self._clock.now_ms()
            layout = view.current(now_ms)
            left_ms = begins_in_ms(layout, now_ms)
            if left_ms <= 0:
                return view, layout
            await asyncio.sleep(left_ms / 1000)

    async def _find_earlier(
        self, view: LayoutView, current: KeyLayout, message: NewRecord
    ) -> MailboxMessageId | None:
        """Find a message with the same idempotency key that was sent under an earlier layout, at most
        `RETRY_WINDOW_MS` before the end of that layout.

        Raises BrokerError, as a broker does, if the key was used for a different message.
        """
        user = message.key or b""
        sender, _, key = message.headers
        ends = [later.since_ms for later in view.layouts[1:]]
        for layout, end_ms in zip(view.layouts, ends, strict=False):
            is_old = self._clock.now_ms() > end_ms + RETRY_WINDOW_MS
            if layout.number >= current.number or is_old or not view.has_place(layout, user):
                continue
            partition = partition_for(user, layout.partitions)
            starts = await self._backend.records.offsets(TOPIC, [partition], end_ms - RETRY_WINDOW_MS)
            offset, is_complete = starts[partition], False
            while not is_complete:
                page = await self._backend.records.read_key(TOPIC, partition, user, offset, _PAGE)
                for record in page.records:
                    if key in record.headers:
                        if record.value != message.value or sender not in record.headers:
                            raise BrokerError(
                                ErrorCode.invalid_record,
                                "the idempotency key was used before, for another message",
                            )
                        written = _layout_of(view, record, partition, user)
                        return MailboxMessageId(written, record.offset, partition)
                offset, is_complete = page.next_offset, page.is_complete
        return None

    # --- receiving

    async def receive(
        self, user_id: str, last: str | None, limits: Limits, wait_ms: int
    ) -> list[MailboxMessage]:
        """Return messages in order: from the oldest on, or after the message with the id `last`. If there are none,
        wait up to `wait_ms` for the first one.
        """
        user = user_id.encode()
        deadline = self._clock.monotonic() + wait_ms / 1000
        while True:
            view = await self._layouts.view()
            after = self._parse(view, user, last)
            left_ms = max(0, round((deadline - self._clock.monotonic()) * 1000))
            found = await self._walk(view, user, after, limits, min(left_ms, MAX_WAIT_LEG_MS))
            if found or left_ms == 0:
                return [self._message(view, user, *each) for each in found]

    def begin_receive(
        self,
        user_id: str,
        last: str | None,
        limits: Limits,
        wait_ms: int,
        reply: Reply[list[MailboxMessage]],
    ) -> AwaitedMessages[list[MailboxMessage]] | None:
        """Receive messages as `receive` does, but without a task; None if a task has to receive them."""
        view = self._layouts.known()
        if view is None or len(view.layouts) > 1:
            return None
        user, [layout] = user_id.encode(), view.layouts
        after = self._parse(view, user, last)
        partition = partition_for(user, layout.partitions)
        from_offset = after.offset + 1 if after is not None and after.partition == partition else 0
        leg_ms = min(wait_ms, MAX_WAIT_LEG_MS)
        wanted = KeyedRead(TOPIC, partition, user, from_offset, *limits, leg_ms)
        deadline = self._clock.monotonic() + wait_ms / 1000

        def show(records: Sequence[Record]) -> list[MailboxMessage]:
            places = [MailboxMessageId(layout.number, record.offset, partition) for record in records]
            return [self._message(view, user, *each) for each in zip(places, records, strict=True)]

        def read() -> Awaitable[list[MailboxMessage]]:
            left_ms = max(0, round((deadline - self._clock.monotonic()) * 1000))
            return self.receive(user_id, last, limits, left_ms)

        awaited = AwaitedMessages(self._backend.records, wanted, show, read, reply)
        return awaited if awaited.begin() else None

    def _parse(self, view: LayoutView, user: bytes, last: str | None) -> MailboxMessageId | None:
        if last is None:
            return None
        found = message_id.decode(last, view.topic_id, user)
        if found is None or all(layout.number != found.layout for layout in view.layouts):
            raise Problem(
                400,
                "last_message_id is not the id of a message to this user; leave it out to begin with the oldest",
                error="INVALID_REQUEST",
            )
        return found

    async def _walk(
        self, view: LayoutView, user: bytes, after: MailboxMessageId | None, limits: Limits, wait_ms: int
    ) -> list[tuple[MailboxMessageId, Record]]:
        """Read the user's messages under each layout, oldest layout first; wait under the current layout."""
        now_ms = self._clock.now_ms()
        current = view.current(now_ms)
        positions: dict[int, int] = {}
        if after is not None:
            positions[after.partition] = after.offset + 1
        found: list[tuple[MailboxMessageId, Record]] = []
        left_bytes = limits.max_bytes
        for layout in _readable(view, user, after):
            partition = partition_for(user, layout.partitions)
            is_last, has_come_here = layout == current, partition in positions
            while len(found) < limits.max_records and left_bytes > 0:
                try:
                    page = await self._read_page(
                        partition,
                        user,
                        positions.get(partition, 0),
                        Limits(limits.max_records - len(found), left_bytes),
                        wait_ms if is_last and not found else 0,
                        may_be_gone=not is_last,
                    )
                except RecordDamaged as damage:
                    if found:
                        return found
                    place = MailboxMessageId(layout.number, damage.next_offset - 1, partition)
                    raise _damaged(message_id.encode(place, view.topic_id, user)) from damage
                taken = self._take(view, layout, page, partition, user, positions, has_come_here)
                left_bytes -= sum(len(record.value or b"") for _, record in taken)
                found += taken
                if page.is_complete or positions[partition] != page.next_offset:
                    break
            if is_last or len(found) >= limits.max_records or left_bytes <= 0:
                break
        return found

    async def _read_page(
        self, partition: int, user: bytes, offset: int, limits: Limits, wait_ms: int, *, may_be_gone: bool
    ) -> KeyPage:
        try:
            return await self._backend.records.read_key(TOPIC, partition, user, offset, limits, wait_ms)
        except BrokerError as error:
            if may_be_gone and error.code is ErrorCode.unknown_topic_or_partition:
                return KeyPage((), offset, True)  # the partition has just been removed, with all its records
            raise

    def _take(
        self,
        view: LayoutView,
        layout: KeyLayout,
        page: KeyPage,
        partition: int,
        user: bytes,
        positions: dict[int, int],
        has_come_here: bool,
    ) -> Sequence[tuple[MailboxMessageId, Record]]:
        """Return the page's records that were written under this layout, and advance the partition's position.

        A record of a later layout ends the page: it is read with its own layout. Records of earlier layouts are
        skipped, because they have been returned before. If `has_come_here`, the reader already had a position in
        this partition, so the records after it have not been returned and are not skipped.
        """
        taken: list[tuple[MailboxMessageId, Record]] = []
        for record in page.records:
            written = _layout_of(view, record, partition, user)
            if written > layout.number:
                positions[partition] = record.offset
                return taken
            if written == layout.number or has_come_here:
                taken.append((MailboxMessageId(layout.number, record.offset, partition), record))
        positions[partition] = page.next_offset
        return taken

    def _message(
        self, view: LayoutView, user: bytes, place: MailboxMessageId, record: Record
    ) -> MailboxMessage:
        sender = next((value for name, value in record.headers if name == FROM_USER), None)
        return MailboxMessage(
            message_id.encode(place, view.topic_id, user),
            (sender or b"").decode(errors="replace"),
            user.decode(),
            (record.value or b"").decode(errors="replace"),
            record.timestamp,
        )


def _readable(view: LayoutView, user: bytes, after: MailboxMessageId | None) -> list[KeyLayout]:
    """Return the layouts that may have messages after the id `after`, and whose partition for the user exists."""
    first = -1 if after is None else after.layout
    return [each for each in view.layouts if each.number >= first and view.has_place(each, user)]


def _damaged(damaged_id: str) -> Problem:
    return Problem(
        500,
        "the next message is damaged on the disk; skip it with this last_message_id",
        error=ErrorCode.corrupt_message.name.upper(),
        last_message_id=damaged_id,
    )


def _layout_of(view: LayoutView, record: Record, partition: int, user: bytes) -> int:
    """Return the number of the layout that a record was written under: the number in its header, or for records of
    other producers that of the layout in use at its timestamp. The layout maps the user to this partition.
    """
    possible = [layout for layout in view.layouts if partition_for(user, layout.partitions) == partition]
    said = next((value for name, value in record.headers if name == LAYOUT), None)
    for layout in possible:
        if said == b"%d" % layout.number:
            return layout.number
    begun = [layout for layout in possible if layout.since_ms <= record.timestamp]
    return (begun[-1] if begun else [*possible, *view.layouts][0]).number
