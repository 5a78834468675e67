"""The transactional ids of one partition of `__transaction_state`, while this broker leads it.

Each decision is a new `Transaction`: it takes effect at once and is appended to the log, and its response is
sent when the record is committed. A refused or repeated request appends the current state once more before
its response: a coordinator that was replaced without knowing cannot commit that record, and clients treat
such responses as final. Markers are written when the decision to commit or abort is committed, and again
after a reload, until all are written.

While the partition is under min.insync.replicas, requests that would write get COORDINATOR_NOT_AVAILABLE
before anything is decided, and markers wait: if the decision were lost with its last replica, a partition
must not have ended the transaction. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial

from penstock.config import TRANSACTIONAL_ID_EXPIRATION_MS
from penstock.errors import BrokerError, ErrorCode, ProtocolError
from penstock.model import LeaderEpoch, ProducerId, TopicPartition
from penstock.records.control import Marker
from penstock.state_log.appender import Appender, is_stored
from penstock.state_log.shard import NOBODY_WAITS, Shard, Waiter, ignore_outcome
from penstock.transactions.context import TransactionContext
from penstock.transactions.endings import Completions, Ending
from penstock.transactions.limits import check_room, check_room_to_hold
from penstock.transactions.producer_connections import ProducerConnections
from penstock.transactions.record_codec import TransactionRecord
from penstock.transactions.transaction import Identity, Transaction, TransactionState, begin

COMPLETION_WAIT_SECONDS = 0.5
"""Maximum time in seconds that a request waits for the end of the previous transaction."""
REPLICAS_RETRY_MS = 200
"""Interval of the checks whether enough replicas are in sync again, for work that no client will retry."""


class TransactionShard(Shard[TransactionRecord]):
    def __init__(
        self,
        partition: int,
        appender: Appender[TransactionRecord],
        context: TransactionContext,
        first_connection: int,
    ) -> None:
        """`first_connection` is the number of the first connection accepted since this broker leads the partition."""
        super().__init__(partition, appender, context)
        self.coordinator_epoch: LeaderEpoch = appender.replica.partition.leader_epoch
        self._transactions: dict[str, Transaction] = {}
        self.id_characters = 0
        self.held_count = 0
        self._context = context
        self._uncommitted: dict[str, int] = {}
        """Number of uncommitted records of each transactional id."""
        self._endings: dict[str, Ending] = {}
        self._completions = Completions()
        self._opened_ms: dict[str, int] = {}
        """Monotonic time in milliseconds at which each open transaction began."""
        self._connections = ProducerConnections(first_connection)

    @property
    def transactions(self) -> Mapping[str, Transaction]:
        return self._transactions

    def resume(self) -> None:
        """Resume the loaded transactions: finish those that are ending, and start the timeouts of open ones."""
        now_ms, wall_ms = self.now_ms(), self._context.wall_ms()
        for transactional_id, transaction in self._transactions.items():
            if transaction.is_ending:
                self._end(transactional_id, transaction)
            elif transaction.state is TransactionState.ONGOING:
                self._opened_ms[transactional_id] = now_ms - max(0, wall_ms - transaction.start_ms)
                self._schedule(transactional_id, self._due_ms(transactional_id, transaction))

    # --- requests

    async def init_producer_id(
        self, transactional_id: str, asking: Identity, timeout_ms: int, is_held: bool
    ) -> Identity:
        """Return a new producer identity, which fences all earlier ones, once the transactions of these have ended."""
        fresh_id: ProducerId | None = None
        while True:
            self.check_writable()
            known, now_ms = self._transactions.get(transactional_id), self._context.wall_ms()
            if is_held:
                check_room_to_hold(self._context, known)
            if fresh_id is None and (known is None or known.is_exhausted):
                check_room(self._context, known)
                fresh_id = await self._context.new_producer_id()
                continue
            try:
                if known is None:
                    assert fresh_id is not None
                    changed = begin(fresh_id, timeout_ms, is_held, now_ms)
                else:
                    changed = known.initialised(asking, timeout_ms, is_held, fresh_id, now_ms)
            except BrokerError as error:
                refusal = error
            else:
                self._connections.reset(transactional_id)
                await self._recorded(transactional_id, changed)
                if not changed.is_ending:
                    return changed.producer
                continue
            await self._complete_first(transactional_id, refusal)

    async def add_partitions(
        self,
        transactional_id: str,
        producer: Identity,
        partitions: Iterable[TopicPartition],
        version: int,
        *,
        may_wait: bool = True,
    ) -> None:
        """Add partitions to the open transaction. Begins a transaction if none is open."""
        while True:
            self._appender.check_replicas()
            try:
                known = self._existing(transactional_id)
                changed = known.with_partitions(producer, partitions, version, self._context.wall_ms())
                break
            except BrokerError as error:
                refusal = error
            await self._complete_first(transactional_id, refusal, may_wait=may_wait)
        await self._recorded(transactional_id, changed)

    async def verify(
        self, transactional_id: str, producer: Identity, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Check, by committed records, whether each partition is in the open transaction of this producer."""
        while True:
            known = self._transactions.get(transactional_id)
            await self._committed(transactional_id)
            if known is self._transactions.get(transactional_id):
                break
        unknown = ErrorCode.invalid_producer_id_mapping
        codes = {each: unknown if known is None else known.verify(producer, each) for each in partitions}
        if any(codes.values()):
            await self._confirm(transactional_id)
        return codes

    def vouches_for(self, transactional_id: str, producer: Identity, partition: TopicPartition) -> bool:
        """True if `verify` would confirm the partition without waiting."""
        known = self._transactions.get(transactional_id)
        return (
            known is not None
            and transactional_id not in self._uncommitted
            and known.verify(producer, partition) is ErrorCode.none
        )

    def plain_addition(
        self, transactional_id: str, producer: Identity, partitions: Iterable[TopicPartition], version: int
    ) -> Transaction | None:
        """Return the decision of `add_partitions`, for `record`; None if the request is refused or must wait."""
        known = self._transactions.get(transactional_id)
        if known is None or self._appender.replica.is_under_min_insync:
            return None
        try:
            return known.with_partitions(producer, partitions, version, self._context.wall_ms())
        except BrokerError:
            return None

    def plain_end(
        self, transactional_id: str, producer: Identity, commit: bool, version: int
    ) -> Transaction | None:
        """Return the decision of `end`, for `record`; None if the request is refused or must wait."""
        known = self._transactions.get(transactional_id)
        if (
            known is None
            or self._appender.replica.is_under_min_insync
            or not known.is_open_to(producer)
            or known.needs_id_to_end(producer, version)
        ):
            return None
        return known.ended(producer, commit, version, None, self._context.wall_ms())

    def record_at_once(self, transactional_id: str, changed: Transaction, response: Waiter) -> None:
        """Record a decision like `record`, but append it now instead of at the end of the loop turn. Turns of
        a busy loop are long, and the client waits for the end of its transaction.
        """
        self.record(transactional_id, changed, response)
        self._appender.append_collected()

    async def end(self, transactional_id: str, producer: Identity, commit: bool, version: int) -> Identity:
        """Decide the outcome of the open transaction. Returns the producer identity for the next transaction."""
        next_id: ProducerId | None = None
        while True:
            self._appender.check_replicas()
            try:
                known = self._existing(transactional_id)
                if next_id is None and known.needs_id_to_end(producer, version):
                    next_id = await self._context.new_producer_id()
                    continue
                changed = known.ended(producer, commit, version, next_id, self._context.wall_ms())
                break
            except BrokerError as error:
                refusal = error
            await self._complete_first(transactional_id, refusal)
        await self._recorded(transactional_id, changed)
        return changed.successor

    def partitions_of(self, transactional_id: str) -> frozenset[TopicPartition]:
        """Partitions of the transaction or, while it ends, those whose marker is not written yet."""
        ending = self._endings.get(transactional_id)
        return self._transactions[transactional_id].partitions if ending is None else ending.left

    def check_connection(self, transactional_id: str, producer: Identity, number: int) -> None:
        """Raise ProtocolError for a late request, whose producer has used a newer connection since.

        In version 1, in which the epoch stays the same, nothing else distinguishes a late EndTxn of the
        previous transaction from that of the current one. Other producers are recognised by their identity.
        """
        known = self._transactions.get(transactional_id)
        if known is None or known.successor != producer:
            return
        if self._connections.is_late(transactional_id, number):
            self._context.counts.late_requests += 1
            raise ProtocolError("late transaction request: the producer has used a newer connection")

    # --- time

    def _on_deadline(self, transactional_id: str) -> None:
        """Abort the transaction if it has been open for longer than its timeout."""
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return
        due_ms = self._due_ms(transactional_id, transaction)
        if due_ms is None:
            return
        if due_ms > self.now_ms():
            self._schedule(transactional_id, due_ms)
            return
        if self._appender.replica.is_under_min_insync:
            self._schedule(transactional_id, self.now_ms() + REPLICAS_RETRY_MS)
            return
        self._context.counts.timeouts += 1
        timed_out = transaction.timed_out(self._context.wall_ms())
        self.record(transactional_id, timed_out, NOBODY_WAITS)

    def sweep(self) -> None:
        """Remove expired transactional ids."""
        if self._closed is not None or self._appender.replica.is_under_min_insync:
            return
        now_ms, expiration_ms = self._context.wall_ms(), self._context.config[TRANSACTIONAL_ID_EXPIRATION_MS]
        expired = [
            transactional_id
            for transactional_id, transaction in self._transactions.items()
            if (expires_ms := transaction.expires_ms(expiration_ms)) is not None and expires_ms <= now_ms
        ]
        for transactional_id in expired:
            self._connections.forget(transactional_id)
            # Records that are added together must fit into one batch, so each is added by itself.
            ignore_outcome(self._record_nothing(transactional_id))

    def _on_close(self, code: ErrorCode) -> None:
        for ending in self._endings.values():
            ending.is_abandoned = True
        self._completions.tell_all()
        self._transactions.clear()
        self._connections.clear()

    # --- from a decision to its response

    def apply(self, record: TransactionRecord) -> None:
        """Replace the transaction of the record's id, or remove the id."""
        transactional_id, value = record
        known = self._transactions.get(transactional_id)
        if value is not None:
            self._transactions[transactional_id] = value
        elif known is not None:
            del self._transactions[transactional_id]
        self.id_characters += len(transactional_id) * ((value is not None) - (known is not None))
        self.held_count += (value is not None and value.is_held) - (known is not None and known.is_held)

    def _recorded(self, transactional_id: str, changed: Transaction) -> asyncio.Future[None]:
        """Apply and append a decision; the future is done when all decisions so far about the id are committed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.record(transactional_id, changed, future)
        return future

    def record(self, transactional_id: str, changed: Transaction, response: Waiter) -> None:
        """Apply a decision, and append it at the end of the loop turn. `response` is settled when this and
        all earlier decisions about the id are committed.
        """
        known = self._transactions.get(transactional_id)
        record = TransactionRecord(transactional_id, changed)
        self.apply(record)
        self._uncommitted[transactional_id] = self._uncommitted.get(transactional_id, 0) + 1
        if changed.state is TransactionState.ONGOING:
            if known is None or known.state is not TransactionState.ONGOING:
                self._opened_ms[transactional_id] = self.now_ms()
                self._schedule(transactional_id, self._due_ms(transactional_id, changed))
        else:
            self._opened_ms.pop(transactional_id, None)
        self._appender.add([record], partial(self._on_recorded, transactional_id, changed, response))

    def _on_recorded(
        self, transactional_id: str, changed: Transaction, response: Waiter, error: BrokerError | None
    ) -> None:
        left = self._uncommitted.pop(transactional_id, 1) - 1
        if left:
            self._uncommitted[transactional_id] = left
        if not is_stored(error):
            self._lose()
        self.settle(response, error)
        # Uncommitted decisions have no effect outside the shard, not even while it closes.
        if is_stored(error) and changed.is_ending and self._transactions.get(transactional_id) is changed:
            self._end(transactional_id, changed)

    def _end(self, transactional_id: str, transaction: Transaction) -> None:
        if transactional_id in self._endings:
            return
        marker = Marker(
            transaction.producer.producer_id,
            transaction.producer.epoch,
            transaction.state is TransactionState.PREPARE_COMMIT,
            self.coordinator_epoch,
        )
        done = partial(self._on_ended, transactional_id, transaction)
        ending = Ending(marker, transaction.version, transaction.partitions, done)
        self._endings[transactional_id] = ending
        self._write_markers(ending)

    def _write_markers(self, ending: Ending) -> None:
        """Write the markers when enough replicas are in sync, now or later."""
        if ending.is_abandoned:
            return
        if self._appender.replica.is_under_min_insync:
            asyncio.get_running_loop().call_later(REPLICAS_RETRY_MS / 1000, self._write_markers, ending)
        else:
            self._context.write_markers(ending)

    def _on_ended(self, transactional_id: str, transaction: Transaction) -> None:
        self._endings.pop(transactional_id, None)
        if self._closed is not None or self._transactions.get(transactional_id) is not transaction:
            return
        if transaction.state is TransactionState.PREPARE_COMMIT:
            self._context.counts.commits += 1
        else:
            self._context.counts.aborts += 1
        completed = transaction.completed(self._context.wall_ms())
        self.record(transactional_id, completed, NOBODY_WAITS)
        self._completions.tell(transactional_id)

    async def _confirm(self, transactional_id: str) -> None:
        """Prove, by a committed record, that this broker coordinated the id at the time of the call."""
        self._appender.check_replicas()
        known = self._transactions.get(transactional_id)
        if known is None:
            await self._record_nothing(transactional_id)
        else:
            await self._recorded(transactional_id, known)

    async def _committed(self, transactional_id: str) -> None:
        """Wait until all decisions about the id are committed."""
        self.check_open()
        if transactional_id in self._uncommitted:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._appender.add([], partial(self.settle, future))
            await future

    def _record_nothing(self, transactional_id: str) -> asyncio.Future[None]:
        """Apply and append a tombstone of the id. The future is done when it is committed."""
        record = TransactionRecord(transactional_id, None)
        self.apply(record)
        return self.write([record])

    async def _complete_first(
        self, transactional_id: str, error: BrokerError, *, may_wait: bool = True
    ) -> None:
        """Wait for the end of the previous transaction if the error is CONCURRENT_TRANSACTIONS and
        `may_wait`. Otherwise, or if the wait takes too long, raise the error.
        """
        if error.code is not ErrorCode.concurrent_transactions:
            await self._confirm(transactional_id)
            raise error
        if not may_wait:
            raise error
        try:
            await self._completions.wait(transactional_id, COMPLETION_WAIT_SECONDS)
        except TimeoutError:
            raise error from None

    # --- helpers

    def _due_ms(self, transactional_id: str, transaction: Transaction) -> int | None:
        if transaction.state is not TransactionState.ONGOING or transaction.is_held:
            return None
        return self._opened_ms[transactional_id] + transaction.timeout_ms

    def _existing(self, transactional_id: str) -> Transaction:
        self.check_open()
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise BrokerError(
                ErrorCode.invalid_producer_id_mapping, "the transactional id does not exist, or has expired"
            )
        return transaction
