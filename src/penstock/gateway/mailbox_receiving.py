"""A receive of a user's messages that waits without a task.

It covers the common case: one layout, one lookup, one page. In all other cases, and after every failure, a
task does the whole receive again in the remaining time. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from penstock.gateway.records import GatewayRecords, KeyPage
from penstock.gateway.reply import Reply
from penstock.internal_client.keyed_reads import KeyedRead
from penstock.records.iteration import Record
from penstock.wire.fetch_by_key import KeyResult

T = TypeVar("T")


class AwaitedMessages(Generic[T]):
    """Receiver of the result of a lookup. It converts the records with `show`, and gives the result to its reply."""

    __slots__ = ("_give_up", "_read", "_records", "_reply", "_show", "_wanted")

    def __init__(
        self,
        records: GatewayRecords,
        wanted: KeyedRead,
        show: Callable[[Sequence[Record]], T],
        read: Callable[[], Awaitable[T]],
        reply: Reply[T],
    ) -> None:
        """Create a receiver. `read` does the whole receive in a task, in the remaining time."""
        self._records = records
        self._wanted = wanted
        self._show = show
        self._read = read
        self._reply = reply
        self._give_up: Callable[[], object] | None = None

    def begin(self) -> bool:
        """Send the lookup; return False if a task has to receive instead."""
        self._give_up = self._records.begin_read_key(self._wanted, self)
        return self._give_up is not None

    def cancel(self) -> None:
        if self._give_up is not None:
            self._give_up()

    def done(self) -> bool:
        return self._reply.done()

    def set_result(self, found: KeyResult, /) -> None:
        try:
            page = self._records.take_key(self._wanted, found)
            shown = None if page is None or not self._is_enough(page) else self._show(page.records)
        except Exception:  # noqa: BLE001 - the task meets the same error and reports it
            shown = None
        if shown is None:
            self._read_in_task()
        else:
            self._reply.set_result(shown)

    def set_exception(self, error: BaseException, /) -> None:
        self._read_in_task()

    def _is_enough(self, page: KeyPage) -> bool:
        """True if the page is the complete result: no further page is needed, and there is nothing to wait for."""
        if not page.records:
            return page.is_complete and self._wanted.max_wait_ms == 0
        return (
            page.is_complete
            or len(page.records) >= self._wanted.max_records
            or sum(len(record.value or b"") for record in page.records) >= self._wanted.max_bytes
        )

    def _read_in_task(self) -> None:
        task = asyncio.ensure_future(self._read())
        self._give_up = task.cancel
        task.add_done_callback(self._on_read)

    def _on_read(self, task: asyncio.Future[T]) -> None:
        if self._reply.done():
            if not task.cancelled():
                task.exception()
        elif task.cancelled():
            self._reply.set_exception(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self._reply.set_exception(error)
        else:
            self._reply.set_result(task.result())
