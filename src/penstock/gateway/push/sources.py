"""Sources of events: a stream for a single reader, a stream of a group, or a user's mailbox. Each is an
`sse.EventSource`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.gateway.mailbox import Mailbox, MailboxMessage
from penstock.gateway.push.group_stream import GroupStream
from penstock.gateway.push.stream import Event, PushStream
from penstock.gateway.records import Limits
from penstock.net.acting import own_requests


class SingleSource:
    """Events for a single reader. Only the reader keeps its position."""

    is_exhausted = False

    def __init__(self, stream: PushStream, on_finish: Callable[[], None]) -> None:
        self._stream = stream
        self._on_finish = on_finish

    async def take(self, max_events: int, max_bytes: int, patience_seconds: float) -> Sequence[Event]:
        return await self._stream.take(max_events, max_bytes, patience_seconds)

    async def finish(self) -> None:
        self._on_finish()
        self._stream.close()


class GroupSource:
    """Events for a member of a group. At most `window` events are unacknowledged at a time."""

    def __init__(self, group_stream: GroupStream, window: int, on_finish: Callable[[], None]) -> None:
        self._group_stream = group_stream
        self._stream = group_stream.stream
        self._window = window
        self._on_finish = on_finish

    @property
    def is_exhausted(self) -> bool:
        return self._group_stream.unacknowledged >= self._window

    async def take(self, max_events: int, max_bytes: int, patience_seconds: float) -> Sequence[Event]:
        left = max(1, self._window - self._group_stream.unacknowledged)
        return await self._stream.take(min(max_events, left), max_bytes, patience_seconds)

    async def finish(self) -> None:
        self._on_finish()
        await self._group_stream.close()
        self._stream.close()


class MailboxSource:
    """Messages of one user's mailbox. The id of an event is the id of the message."""

    is_exhausted = False

    def __init__(
        self, mailbox: Mailbox, user_id: str, last: str | None, render: Callable[[MailboxMessage], bytes]
    ) -> None:
        self._mailbox = mailbox
        self._user_id = user_id
        self._last = last
        self._render = render

    async def take(self, max_events: int, max_bytes: int, patience_seconds: float) -> Sequence[Event]:
        limits, wait_ms = Limits(max_events, max_bytes), round(patience_seconds * 1000)
        with own_requests():
            messages = await self._mailbox.receive(self._user_id, self._last, limits, wait_ms)
        if messages:
            self._last = messages[-1].id
        return [Event(message.id, self._render(message)) for message in messages]

    async def finish(self) -> None:
        """Do nothing: a mailbox source holds no resources."""
