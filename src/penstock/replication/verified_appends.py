"""First batches of transactions, held until the coordinator has confirmed the partition (KIP-890).

Without this check a record could be stored for which no marker is ever written. While a batch is held, later batches of
its producer wait after it; other producers are not affected. A confirmation is valid until the transaction has a record
in the partition, or a marker ends it. A marker also refuses held batches of the transaction, because the coordinator
might confirm them for the next transaction. Loop thread only, on the leader.
"""

from __future__ import annotations

import asyncio
from asyncio import Task
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.records.batch import BatchHeader
from penstock.records.control import Marker
from penstock.storage.log import Log

Verify = Callable[[], Coroutine[Any, Any, ErrorCode]]
"""Function that asks the coordinator if the partition belongs to the transaction of a batch; `none` if it does."""


@dataclass(slots=True, eq=False)
class _Unverified:
    header: BatchHeader
    verify: Verify
    go_on: Callable[[], None]
    refuse: Callable[[BrokerError], None]


class _Queue:
    """Held batches of one producer, and the running question to the coordinator about the first of them."""

    __slots__ = ("asking", "held")

    def __init__(self) -> None:
        self.held: deque[_Unverified] = deque()
        self.asking: Task[ErrorCode] | None = None


class VerifiedAppends:
    def __init__(self, log: Log, on_refusal: Callable[[BatchHeader, ErrorCode], None]) -> None:
        """`on_refusal` is called for each batch that the coordinator does not confirm."""
        self._log = log
        self._on_refusal = on_refusal
        self._queues: dict[int, _Queue] = {}
        self._verified: dict[int, int] = {}
        """Producer epoch by producer id, of confirmed transactions without a record in the partition."""

    def must_hold(self, header: BatchHeader) -> bool:
        return header.producer_id in self._queues or not (
            self._log.producers.is_in_transaction(header) or self._is_verified(header)
        )

    def vouch(self, header: BatchHeader) -> bool:
        """Record that the coordinator has confirmed the partition; False if the batch waits after earlier batches."""
        if header.producer_id in self._queues:
            return False
        self._verified[header.producer_id] = header.producer_epoch
        return True

    def hold(
        self,
        header: BatchHeader,
        verify: Verify,
        go_on: Callable[[], None],
        refuse: Callable[[BrokerError], None],
    ) -> None:
        """Hold a batch. Later `go_on` is called if it is confirmed, else `refuse`."""
        producer_id = header.producer_id
        queue = self._queues.get(producer_id)
        if queue is None:
            queue = self._queues[producer_id] = _Queue()
        queue.held.append(_Unverified(header, verify, go_on, refuse))
        if queue.asking is None:
            self._ask(producer_id, queue)

    def check(self, header: BatchHeader) -> None:
        """Refuse a batch whose transaction is not confirmed now. It may have been when the batch arrived."""
        if not self._log.producers.is_in_transaction(header) and not self._is_verified(header):
            raise BrokerError(
                ErrorCode.invalid_txn_state,
                f"the partition is in no open transaction of producer {header.producer_id}",
            )

    def on_append(self, producer_id: int) -> None:
        """Drop the confirmation of a transaction, which has a record in the partition now."""
        self._verified.pop(producer_id, None)

    def on_marker(self, marker: Marker, ended_below: int) -> None:
        """End the producer's transactions in epochs below `ended_below`."""
        producer_id = marker.producer_id
        if self._verified.get(producer_id, ended_below) < ended_below:
            del self._verified[producer_id]
        queue = self._queues.get(producer_id)
        if queue is not None:
            self._refuse_ended(marker, queue, ended_below)

    def _refuse_ended(self, marker: Marker, queue: _Queue, ended_below: int) -> None:
        asked = queue.held[0]
        ended = [held for held in queue.held if held.header.producer_epoch < ended_below]
        queue.held = deque(held for held in queue.held if held.header.producer_epoch >= ended_below)
        if asked in ended:
            self._go_on_asking(marker.producer_id, queue)  # the response about this batch is obsolete
        _call_all(partial(held.refuse, _ended(held.header, marker)) for held in ended)

    def give_up(self, error: BrokerError) -> None:
        """Refuse all held batches, when this broker stops leading."""
        queues, self._queues = self._queues, {}
        self._verified.clear()
        for queue in queues.values():
            if queue.asking is not None:
                queue.asking.cancel()
        _call_all(partial(held.refuse, error) for queue in queues.values() for held in queue.held)

    def _is_verified(self, header: BatchHeader) -> bool:
        return self._verified.get(header.producer_id) == header.producer_epoch

    def _ask(self, producer_id: int, queue: _Queue) -> None:
        queue.asking = asyncio.get_running_loop().create_task(queue.held[0].verify())
        queue.asking.add_done_callback(partial(self._on_answer, producer_id, queue))

    def _go_on_asking(self, producer_id: int, queue: _Queue) -> None:
        if queue.held:
            self._ask(producer_id, queue)
        else:
            del self._queues[producer_id]

    def _on_answer(self, producer_id: int, queue: _Queue, asked: Task[ErrorCode]) -> None:
        if self._queues.get(producer_id) is not queue or queue.asking is not asked:
            return  # refused, or ended by a marker meanwhile
        code = ErrorCode.coordinator_not_available
        try:
            code = asked.result()
        finally:
            # also after an unexpected error, so that held batches do not wait forever
            self._settle(producer_id, queue, code)

    def _settle(self, producer_id: int, queue: _Queue, code: ErrorCode) -> None:
        """Apply the coordinator's response to all held batches with the producer epoch of the first."""
        epoch = queue.held[0].header.producer_epoch
        settled = []
        while queue.held and queue.held[0].header.producer_epoch == epoch:
            settled.append(queue.held.popleft())
        self._go_on_asking(producer_id, queue)
        if code is ErrorCode.none:
            self._verified[producer_id] = epoch
            _call_all(held.go_on for held in settled)
        else:
            for held in settled:
                self._on_refusal(held.header, code)
            error = BrokerError(code, "the coordinator did not confirm the partition in the transaction")
            _call_all(partial(held.refuse, error) for held in settled)


def _ended(header: BatchHeader, marker: Marker) -> BrokerError:
    is_old = header.producer_epoch < marker.producer_epoch
    code = ErrorCode.invalid_producer_epoch if is_old else ErrorCode.invalid_txn_state
    return BrokerError(code, "the transaction has ended")


def _call_all(callbacks: Iterable[Callable[[], object]]) -> None:
    """Call all callbacks in order, even if one of them fails."""
    with ExitStack() as stack:
        for callback in reversed(tuple(callbacks)):
            stack.callback(callback)
