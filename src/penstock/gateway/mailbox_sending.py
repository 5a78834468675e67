"""The acknowledgement of a message sent to a mailbox: receives the message's offset and returns its id.

A message is acknowledged only if readers will find it. A message that was committed too late for its layout may be
missed by them (`mailbox_layouts.py`). Loop thread only.
"""

from __future__ import annotations

import asyncio

from penstock.clock import Clock
from penstock.config.key_layouts import KeyLayout
from penstock.errors import BrokerError, ErrorCode
from penstock.gateway import message_id
from penstock.gateway.mailbox_layouts import LayoutView, MailboxLayouts
from penstock.gateway.message_id import MailboxMessageId
from penstock.gateway.reply import Reply
from penstock.internal_client.errors import OutcomeUnknown


class SentMessage:
    """Receiver of the offset of a message. It gives the message's id to its reply."""

    __slots__ = ("_clock", "_layout", "_layouts", "_offset", "_partition", "_reply", "_topic_id", "_user")

    def __init__(
        self,
        layouts: MailboxLayouts,
        clock: Clock,
        view: LayoutView,
        layout: KeyLayout,
        partition: int,
        user: bytes,
        reply: Reply[str],
    ) -> None:
        self._layouts = layouts
        self._clock = clock
        self._topic_id = view.topic_id
        self._layout = layout
        self._partition = partition
        self._user = user
        self._reply = reply
        self._offset = -1

    def done(self) -> bool:
        return self._reply.done()

    def set_result(self, offset: int, /) -> None:
        self._offset = offset
        view = self._layouts.known()
        if view is None:
            asyncio.ensure_future(self._layouts.view()).add_done_callback(self._on_view)
        else:
            self._confirm(view)

    def set_exception(self, error: BaseException, /) -> None:
        if isinstance(error, BrokerError) and error.code is ErrorCode.unknown_topic_or_partition:
            self._layouts.forget()
        self._reply.set_exception(error)

    def _on_view(self, reading: asyncio.Future[LayoutView]) -> None:
        if self._reply.done():
            return
        error = asyncio.CancelledError() if reading.cancelled() else reading.exception()
        if error is None:
            self._confirm(reading.result())
        elif isinstance(error, BrokerError | OSError | asyncio.CancelledError):
            unknown = OutcomeUnknown(
                "the partition count could not be read, so readers may not find the message"
            )
            unknown.__cause__ = error
            self._reply.set_exception(unknown)
        else:
            self._reply.set_exception(error)

    def _confirm(self, view: LayoutView) -> None:
        if view.is_over(self._layout, self._clock.now_ms()):
            self._reply.set_exception(
                OutcomeUnknown("the partition count changed while the message was sent")
            )
            return
        place = MailboxMessageId(self._layout.number, self._offset, self._partition)
        try:
            sent_id = message_id.encode(place, self._topic_id, self._user)
        except Exception as error:  # noqa: BLE001 - the reply reports every failure
            self._reply.set_exception(error)
        else:
            self._reply.set_result(sent_id)
