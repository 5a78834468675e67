"""State of a transactional id as an immutable value; each request makes a new value of it. Pure.

Every change is one record of the log, so a new coordinator resumes from the last record. Once PREPARE_COMMIT
is recorded, the outcome is commit, and likewise for abort. Clients never get the highest epoch, which is
reserved for fencing and for the last marker of a producer id.

In version 2 (KIP-890) the producer gets a new epoch at every end of a transaction, so that late requests have
an old epoch; in version 1 the epoch stays the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple

from penstock.errors import BrokerError, ErrorCode
from penstock.model import NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition

NO_EPOCH: Final = ProducerEpoch(-1)
MAX_EPOCH: Final = 32_767
LAST_EPOCH_OF_CLIENTS: Final = MAX_EPOCH - 1
NO_TIME_MS: Final = -1
VERSION_1: Final = 1
VERSION_2: Final = 2


class TransactionState(IntEnum):
    """States of a transaction, with Kafka's codes."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """Name of the state as Kafka's tools spell it."""
        return self.name.title().replace("_", "")


class Identity(NamedTuple):
    """Producer id and epoch: the identity of a producer."""

    producer_id: ProducerId
    epoch: ProducerEpoch


NOBODY: Final = Identity(NO_PRODUCER_ID, NO_EPOCH)


@dataclass(frozen=True, slots=True)
class Transaction:
    producer: Identity
    """The newest identity. While the transaction ends, it is the identity in the markers."""
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME_MS
    update_ms: int = NO_TIME_MS
    version: int = VERSION_1
    """Version of the transaction protocol that the client used in the last transaction."""
    earlier: Identity = NOBODY
    """Identity that requested the newest identity. If it repeats that request, it gets the same response."""
    next_producer_id: ProducerId = NO_PRODUCER_ID
    """Producer id to use after the transaction has ended, because the epochs of the current one are exhausted."""
    is_held: bool = False
    """True if no timeout aborts the transaction, because an external coordinator decides its outcome."""

    # --- queries

    @property
    def is_ending(self) -> bool:
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        return not self.is_ending and self.state is not TransactionState.ONGOING

    @property
    def is_exhausted(self) -> bool:
        """True if the epochs of the current producer id are exhausted, so that the next identity needs another one."""
        return self.producer.epoch >= LAST_EPOCH_OF_CLIENTS

    @property
    def successor(self) -> Identity:
        """Identity with which the next transaction may begin."""
        if self.is_ending and self.next_producer_id != NO_PRODUCER_ID:
            return Identity(self.next_producer_id, ProducerEpoch(0))
        return self.producer

    def expires_ms(self, expiration_ms: int) -> int | None:
        """Wall-clock time in milliseconds at which an idle id expires; None while a transaction is open or ending."""
        return self.update_ms + expiration_ms if self.is_idle else None

    # --- InitProducerId

    def initialised(
        self,
        asking: Identity,
        timeout_ms: int,
        is_held: bool,
        fresh_id: ProducerId | None,
        now_ms: int,
    ) -> Transaction:
        """Return the state with a new epoch. A client that names its identity gets one only if no other
        producer has taken over since (KIP-360).

        An open transaction is aborted first, with an epoch that no producer has, and the response is sent
        after the abort. A held transaction is not aborted for a client that requests to hold the next one,
        because the external coordinator may have decided to commit it. `fresh_id` is used when the epochs are
        exhausted.
        """
        is_repeat = asking != NOBODY and asking == self.earlier
        if asking not in (NOBODY, self.successor) and not is_repeat:
            raise _fenced()
        if self.is_ending:
            raise BrokerError(ErrorCode.concurrent_transactions)
        if self.state is TransactionState.ONGOING:
            if self.is_held and is_held:
                raise BrokerError(
                    ErrorCode.invalid_txn_state,
                    "the transactional id has an open held transaction; commit or abort it first",
                )
            return self._fenced_off(asking, now_ms)
        if is_repeat and self.state is TransactionState.EMPTY:
            return self
        if self.is_exhausted:
            assert fresh_id is not None
            producer = Identity(fresh_id, ProducerEpoch(0))
        else:
            producer = _bumped(self.producer)
        return Transaction(producer, timeout_ms, update_ms=now_ms, earlier=asking, is_held=is_held)

    # --- partitions

    def with_partitions(
        self, producer: Identity, partitions: Iterable[TopicPartition], version: int, now_ms: int
    ) -> Transaction:
        """Add partitions. Returns the same object if all of them are in the transaction already."""
        self._check_producer(producer)
        if self.is_ending:
            raise BrokerError(ErrorCode.concurrent_transactions)
        is_open = self.state is TransactionState.ONGOING
        added = self.partitions.union(partitions)
        if is_open and added == self.partitions:
            return self
        return replace(
            self,
            state=TransactionState.ONGOING,
            partitions=added,
            start_ms=self.start_ms if is_open else now_ms,
            update_ms=now_ms,
            version=version,
            earlier=NOBODY,
        )

    def verify(self, producer: Identity, partition: TopicPartition) -> ErrorCode:
        """Check that the partition is in the open transaction of this producer; NONE if it is."""
        if producer.producer_id != self.producer.producer_id:
            return ErrorCode.invalid_producer_id_mapping
        if producer != self.producer:
            return ErrorCode.producer_fenced
        is_open = self.state is TransactionState.ONGOING
        return ErrorCode.none if is_open and partition in self.partitions else ErrorCode.transaction_abortable

    # --- the end

    def is_open_to(self, producer: Identity) -> bool:
        """True if the transaction is open and this is its current producer."""
        return (
            self.state is TransactionState.ONGOING
            and producer == self.producer
            and producer.epoch <= LAST_EPOCH_OF_CLIENTS
        )

    def needs_id_to_end(self, producer: Identity, version: int) -> bool:
        return version >= VERSION_2 and self.is_exhausted and producer == self.producer and not self.is_ending

    def ended(
        self, producer: Identity, commit: bool, version: int, next_id: ProducerId | None, now_ms: int
    ) -> Transaction:
        """Decide the outcome. The markers are written next, then `completed` is called. Returns the same
        object if the same outcome was decided before.
        """
        if version >= VERSION_2 and self._has_ended and producer == self.earlier != NOBODY:
            self._check_outcome(commit)
            return self
        self._check_producer(producer)
        if self.state is TransactionState.ONGOING:
            return self._ending(commit, version, next_id, now_ms)
        if version < VERSION_2:
            self._check_outcome(commit)
            return self
        if self.is_ending:
            raise BrokerError(ErrorCode.concurrent_transactions)
        if commit:
            raise _wrong_state()
        # An abort without a transaction still fences late requests.
        ending = self._ending(commit, version, next_id, now_ms)
        return replace(ending, start_ms=now_ms).completed(now_ms)

    def timed_out(self, now_ms: int) -> Transaction:
        """Return this open transaction, whose timeout has passed, as aborting, with its producer fenced."""
        assert self.state is TransactionState.ONGOING
        return self._fenced_off(NOBODY, now_ms)

    def completed(self, now_ms: int) -> Transaction:
        """Complete the transaction after all markers were written."""
        committed = self.state is TransactionState.PREPARE_COMMIT
        return replace(
            self,
            state=TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT,
            producer=self.successor,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            update_ms=now_ms,
        )

    @property
    def _has_ended(self) -> bool:
        return self.state not in (TransactionState.EMPTY, TransactionState.ONGOING)

    def _ending(self, commit: bool, version: int, next_id: ProducerId | None, now_ms: int) -> Transaction:
        changed = replace(
            self,
            state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            update_ms=now_ms,
            version=version,
        )
        if version < VERSION_2:
            return changed
        assert not self.is_exhausted or next_id is not None
        return replace(
            changed,
            producer=_bumped(self.producer),
            earlier=self.producer,
            next_producer_id=next_id if self.is_exhausted and next_id is not None else NO_PRODUCER_ID,
        )

    def _fenced_off(self, by: Identity, now_ms: int) -> Transaction:
        return replace(
            self,
            state=TransactionState.PREPARE_ABORT,
            producer=_bumped(self.producer),
            earlier=by,
            update_ms=now_ms,
        )

    def _check_producer(self, producer: Identity) -> None:
        """Raise BrokerError unless this identity may begin or end a transaction."""
        if producer.producer_id not in (self.producer.producer_id, self.successor.producer_id):
            raise BrokerError(
                ErrorCode.invalid_producer_id_mapping, "the transactional id has another producer id"
            )
        if producer != self.successor or producer.epoch > LAST_EPOCH_OF_CLIENTS:
            raise _fenced()

    def _check_outcome(self, commit: bool) -> None:
        committed = self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
        aborted = self.state in (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
        if not (committed if commit else aborted):
            raise _wrong_state()


def begin(producer_id: ProducerId, timeout_ms: int, is_held: bool, now_ms: int) -> Transaction:
    """First state of a new transactional id."""
    producer = Identity(producer_id, ProducerEpoch(0))
    return Transaction(producer, timeout_ms, update_ms=now_ms, is_held=is_held)


def _bumped(producer: Identity) -> Identity:
    return Identity(producer.producer_id, ProducerEpoch(producer.epoch + 1))


def _fenced() -> BrokerError:
    return BrokerError(ErrorCode.producer_fenced, "a newer producer uses this transactional id")


def _wrong_state() -> BrokerError:
    return BrokerError(
        ErrorCode.invalid_txn_state,
        "the transaction cannot be committed or aborted: it is not open, or has ended with the other outcome",
    )
