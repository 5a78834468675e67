"""First batches of transactions, held until the coordinator has said that the partition belongs to them (KIP-890).

So nothing is stored that no marker would follow. While one is held, later ones of its producer wait behind it, and
others go on. What the coordinator said counts until the transaction is begun here or ended by a marker, and batches
that are held then are refused: asked about again, they might be taken for the next transaction's. Loop thread only, on
the leader.
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
"""Asks whether the partition belongs to the transaction of a batch."""


@dataclass(slots=True, eq=False)
class _Unverified:
    header: BatchHeader
    verify: Verify
    go_on: Callable[[], None]
    refuse: Callable[[BrokerError], None]


class _Queue:
    """The batches of one producer; the first is asked about."""

    __slots__ = ("asking", "held")

    def __init__(self) -> None:
        self.held: deque[_Unverified] = deque()
        self.asking: Task[ErrorCode] | None = None


class VerifiedAppends:
    def __init__(self, log: Log, on_refusal: Callable[[BatchHeader, ErrorCode], None]) -> None:
        """`on_refusal` is told of each batch that the coordinator does not confirm."""
        self._log = log
        self._on_refusal = on_refusal
        self._queues: dict[int, _Queue] = {}
        self._verified: dict[int, int] = {}
        """The epoch of each producer whose transaction is known to have this partition, and is not begun here."""

    def must_hold(self, header: BatchHeader) -> bool:
        return header.producer_id in self._queues or not (
            self._log.producers.is_in_transaction(header) or self._is_verified(header)
        )

    def vouch(self, header: BatchHeader) -> bool:
        """The coordinator has said that the partition belongs to the batch's transaction. False where the batch has to
        wait nevertheless, behind others of its producer."""
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
        """Call one of both, later."""
        producer_id = header.producer_id
        queue = self._queues.get(producer_id)
        if queue is None:
            queue = self._queues[producer_id] = _Queue()
        queue.held.append(_Unverified(header, verify, go_on, refuse))
        if queue.asking is None:
            self._ask(producer_id, queue)

    def check(self, header: BatchHeader) -> None:
        """Refuse a batch that may not be appended now, whatever was known when it came."""
        if not self._log.producers.is_in_transaction(header) and not self._is_verified(header):
            raise BrokerError(
                ErrorCode.invalid_txn_state,
                f"the partition is in no open transaction of producer {header.producer_id}",
            )

    def on_append(self, producer_id: int) -> None:
        """A batch of a transaction was appended: it is begun."""
        self._verified.pop(producer_id, None)

    def on_marker(self, marker: Marker, ended_below: int) -> None:
        """The producer's transactions in epochs below this one have ended."""
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
            self._go_on_asking(marker.producer_id, queue)  # what is said of it no longer matters
        _call_all(partial(held.refuse, _ended(held.header, marker)) for held in ended)

    def give_up(self, error: BrokerError) -> None:
        """This broker leads no more: whoever waits is told so."""
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
            return  # given up, or ended by a marker meanwhile
        code = ErrorCode.coordinator_not_available
        try:
            code = asked.result()
        finally:
            # Whatever went wrong, those that wait are not held up for ever.
            self._settle(producer_id, queue, code)

    def _settle(self, producer_id: int, queue: _Queue, code: ErrorCode) -> None:
        """The answer goes for all batches of its epoch that have come so far."""
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
            error = BrokerError(code, "the partition is not known to be in the transaction")
            _call_all(partial(held.refuse, error) for held in settled)


def _ended(header: BatchHeader, marker: Marker) -> BrokerError:
    is_old = header.producer_epoch < marker.producer_epoch
    code = ErrorCode.invalid_producer_epoch if is_old else ErrorCode.invalid_txn_state
    return BrokerError(code, "the transaction has ended")


def _call_all(callbacks: Iterable[Callable[[], object]]) -> None:
    """In order, the later ones also when an earlier one fails: nobody waits for ever."""
    with ExitStack() as stack:
        for callback in reversed(tuple(callbacks)):
            stack.callback(callback)
