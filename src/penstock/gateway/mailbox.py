"""Mailboxes: messages to users, stored in the topic `mailbox` with the receiving user as key.

A message is acknowledged when it is committed. The messages of one user have one order, that of their ids,
even when partitions are added or removed: a read goes through the partition counts that were used, oldest first
(`mailbox_layouts.py`).
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
"""A long poll looks up the user's partition again after this many milliseconds."""
RETRY_WINDOW_MS = 86_400_000
"""Look-back window for idempotency keys after the partition count changed, in milliseconds: a retry is matched with
sends up to this long before the change.
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
        """Send a message and return its id, once it is committed; with a key, the id of the first message
        sent with that key.
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
        """Send a message as `send` does, without a task; False where the send has to wait for something."""
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
        """Return the layout to send under; waits for a moment while one layout replaces another."""
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
        """Find a message with the same idempotency key that was sent shortly before the end of an earlier layout.

        Raises BrokerError, as a broker does, if the key was used for another message.
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
        """Return messages in order, from the oldest or after the last one seen; wait for the first where
        there is none.
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
        """Receive messages as `receive` does, without a task; None where a task has to receive them."""
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
        """Read the layouts, oldest first, and wait at the last one in use."""
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
                return KeyPage(
                    (), offset, True
                )  # the partition was removed a moment ago, with all its records
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
        """Return the page's records of this layout.

        Records of later layouts are read in their turn. Records of earlier layouts have been received, unless
        the reader has come to this offset before them.
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
    """Layouts that may have messages after one, whose partitions exist."""
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
    """Return the layout of a record: the one its gateway wrote into it, or for records of other producers the
    one in use at its timestamp. The layout always maps the user to this partition.
    """
    possible = [layout for layout in view.layouts if partition_for(user, layout.partitions) == partition]
    said = next((value for name, value in record.headers if name == LAYOUT), None)
    for layout in possible:
        if said == b"%d" % layout.number:
            return layout.number
    begun = [layout for layout in possible if layout.since_ms <= record.timestamp]
    return (begun[-1] if begun else [*possible, *view.layouts][0]).number
