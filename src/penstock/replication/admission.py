"""Admission of a producer's batch: the checks before the append, and the batches that wait for a check.

`check_produced` checks the bytes of a batch and needs no state. `Admission` belongs to one replica. It holds a batch
until its records were checked, its idempotency key was looked up, its transaction was verified and the key index has
caught up, and it keeps the order of a producer's batches. It remembers batches that were refused with a retriable
error, so that later batches of the same producer get the same error. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

from penstock.delay.checking import DelayRules
from penstock.errors import BrokerError, ErrorCode
from penstock.model import TopicPartition
from penstock.records.batch import TRANSACTIONAL_FLAG, BatchHeader
from penstock.records.compression import Codec
from penstock.records.control import Marker
from penstock.records.validation import check_batch
from penstock.replication.delayed_delivery import DelayedLog
from penstock.replication.held_appends import AppendCallback, HeldAppend, HeldAppends
from penstock.replication.keyed_log import KeyedLog
from penstock.replication.refused_batches import FORMER_LEADER_SECONDS, RefusedBatches, is_missing_batch
from penstock.replication.verified_appends import VerifiedAppends
from penstock.storage.log import AppendInfo, Log
from penstock.storage.log_config import LogConfig
from penstock.threads import Threads

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1


Append = Callable[[memoryview, BatchHeader, int], AppendInfo]
LengthCheck = Callable[[int], None]
"""Function that raises BrokerError if a queue of the topic has no room for the given number of records."""


class TransactionCheck(Protocol):
    """Coordinator of the transaction that a producer names in its request."""

    def vouches_for(self, partition: TopicPartition, header: BatchHeader) -> bool:
        """True if the coordinator runs on this broker and the partition is in the batch's transaction."""

    async def verify(self, partition: TopicPartition, header: BatchHeader) -> ErrorCode:
        """Ask the coordinator if the partition is in the batch's transaction.

        Return `ErrorCode.none` if it is, else the coordinator's error.
        """


def check_produced(
    batch: memoryview, max_bytes: int, is_transactional: bool = False, allows_zstd: bool = True
) -> BatchHeader:
    """Check a produced batch and return its header; BrokerError if `batch` is not exactly one batch that is allowed.

    `is_transactional` is True if the request has a transactional id, `allows_zstd` if its Produce version allows zstd.
    """
    header = check_batch(batch, max_bytes=max_bytes)
    attributes = header.attributes
    if attributes:
        if bool(attributes & TRANSACTIONAL_FLAG) is not is_transactional:
            raise _transaction_mismatch()
        if not allows_zstd and header.codec == Codec.ZSTD:
            raise BrokerError(ErrorCode.unsupported_compression_type, "zstd needs Produce version 7")
    elif is_transactional:
        raise _transaction_mismatch()
    return header


def not_enough_replicas() -> BrokerError:
    """Error for a batch that was not stored because of min.insync.replicas."""
    return BrokerError(ErrorCode.not_enough_replicas, "fewer replicas are in sync than min.insync.replicas")


def not_enough_replicas_after_append() -> BrokerError:
    """Error for a batch that was stored but is not acknowledged; the producer sends it again."""
    return BrokerError(
        ErrorCode.not_enough_replicas_after_append,
        "stored, but fewer replicas are in sync than min.insync.replicas",
    )


def _transaction_mismatch() -> BrokerError:
    return BrokerError(
        ErrorCode.invalid_txn_state,
        "a batch must be transactional if and only if the request has a transactional id",
    )


class Admission:
    def __init__(
        self,
        log: Log,
        threads: Threads,
        refused: RefusedBatches,
        append: Append,
        refuses_acks_all: Callable[[], bool],
    ) -> None:
        """`append` appends a batch that has passed all checks; `refuses_acks_all` is `Replica.refuses_acks_all`."""
        self.keyed: KeyedLog | None = None
        """Index by key; None if the topic has no `index.by.key`."""
        self.delays: DelayRules | None = None
        """Rules for delayed and expiring messages; None if the topic has none."""
        self.length_limits: Mapping[str, LengthCheck] = {}
        """Checks of topics whose queues have a maximum length, by topic."""
        self.verified = VerifiedAppends(log, self._on_unverified)
        self.refused = refused
        self._log = log
        self._threads = threads
        self._max_message_bytes = log.config.max_message_bytes
        self._append = append
        self._refuses_acks_all = refuses_acks_all
        self._held = HeldAppends(log, threads, self._append_held)
        self._leads_since = refused.now()
        partition = log.topic_partition.partition
        self._refused_as = (log.topic_partition.topic, partition), (log.topic_id, partition)
        """Keys of this partition in `RefusedBatches`: with the topic's name, and with its id."""

    def configure(self, config: LogConfig) -> None:
        """Apply the topic's settings."""
        self._max_message_bytes = config.max_message_bytes
        self._held.checks_records = config.checks_records
        self.delays = self._held.delays = config.delay_rules
        if not config.index_by_key and self.keyed is not None:
            name = self._log.topic_partition
            self.keyed.fail(BrokerError(ErrorCode.invalid_request, f"{name} does not have index.by.key=true"))
            self.keyed = None
        elif config.index_by_key and self.keyed is None:
            self.keyed = KeyedLog(self._log, self._threads)
        self._held.keyed = self.keyed

    @property
    def delayed(self) -> DelayedLog | None:
        """Delayed messages of a partition that this broker leads; None for topics without `delivery.delay`."""
        return self._held.delayed

    @delayed.setter
    def delayed(self, delayed: DelayedLog | None) -> None:
        self._held.delayed = delayed

    def append(
        self,
        batch: memoryview,
        now_ms: int,
        callback: AppendCallback | None,
        acks: int = ACKS_ALL,
        transaction: TransactionCheck | None = None,
        allows_zstd: bool = True,
    ) -> AppendInfo | None:
        """Append a producer's batch; BrokerError if it is refused, and then nothing has changed.

        None if the batch has to wait for a check or for the key index: it is held, and `callback` is called later with
        the append or the refusal. Without a `callback` the batch is not held, and nothing has changed.
        """
        header = check_produced(batch, self._max_message_bytes, transaction is not None, allows_zstd)
        keyed, held = self.keyed, self._held
        if keyed is not None:
            keyed.check_size(header)
        if self.length_limits:
            self._check_length(header)
        acks_all = acks == ACKS_ALL
        if acks_all and self._refuses_acks_all():
            raise not_enough_replicas()
        may_delay = self.delays is not None and self.delays.must_wait(batch, header, now_ms)
        if transaction is not None and self._must_verify(transaction, header):
            assert callback is not None, "a transactional batch may be held"
            waiting = HeldAppend(batch, header, now_ms, callback, acks_all=acks_all, may_delay=may_delay)
            self._hold_unverified(waiting, transaction)
            return None
        may_be_stored = keyed is not None and keyed.must_check(batch, header)
        if may_be_stored or may_delay or held.must_hold:
            if callback is None:
                return None
            held.hold(
                HeldAppend(batch, header, now_ms, callback, may_be_stored, acks_all, may_delay=may_delay)
            )
            return None
        return self._append(batch, header, now_ms)

    def _check_length(self, header: BatchHeader) -> None:
        """Refuse a batch for which a queue of the topic has no room, unless the batch is stored already."""
        check = self.length_limits.get(self._log.topic_partition.topic)
        if check is not None and not self._is_duplicate(header):
            check(header.record_count)

    def _is_duplicate(self, header: BatchHeader) -> bool:
        try:
            return header.has_producer and self._log.producers.check(header) is not None
        except BrokerError:
            return True  # the append will refuse the batch with this error

    def _append_held(self, held: HeldAppend) -> AppendInfo:
        """Append a held batch after its checks. min.insync.replicas is checked again, because time has passed."""
        if held.acks_all and self._refuses_acks_all():
            raise not_enough_replicas()
        append = partial(self._append, held.batch, held.header, held.now_ms)
        if not held.cancels:
            return append()
        if self.delayed is None:
            raise BrokerError(ErrorCode.not_leader_or_follower, "the leader of the partition is changing")
        return self.delayed.cancel(held.cancels, held.header, append)

    def fail(self, error: BrokerError) -> None:
        """Refuse every held batch."""
        self._held.give_up(error)
        self.verified.give_up(error)

    # --- transactions

    def _must_verify(self, transaction: TransactionCheck, header: BatchHeader) -> bool:
        return self.verified.must_hold(header) and not (
            transaction.vouches_for(self._log.topic_partition, header) and self.verified.vouch(header)
        )

    def _hold_unverified(self, held: HeldAppend, transaction: TransactionCheck) -> None:
        verify = partial(transaction.verify, self._log.topic_partition, held.header)
        self.verified.hold(held.header, verify, partial(self._on_verified, held), held.callback)

    def _on_verified(self, held: HeldAppend) -> None:
        if self._held.must_hold or held.may_delay:
            self._held.hold(held)
            return
        result: AppendInfo | BrokerError = BrokerError(
            ErrorCode.kafka_storage_error, "the batch could not be appended"
        )
        try:
            result = self._append_held(held)
        except BrokerError as error:
            result = error
        finally:
            held.callback(result)  # also after an unexpected error, so that the producer gets a response

    def _on_unverified(self, header: BatchHeader, code: ErrorCode) -> None:
        """Record the refusal of a batch that the transaction coordinator did not confirm."""
        self.refused.remember(self._refused_as[0], header, code)

    def on_transaction_end(self, marker: Marker, *, is_epoch_new: bool) -> None:
        """Forget refused and held batches of the transaction that the marker has ended, and of earlier epochs.

        `is_epoch_new` is True if the marker has the epoch of the next transaction, so that only lower epochs are ended.
        """
        ended_below = marker.producer_epoch if is_epoch_new else marker.producer_epoch + 1
        self.refused.on_epoch_end(marker.producer_id, ended_below, *self._refused_as)
        self.verified.on_marker(marker, ended_below)

    # --- refused batches

    def check_refused(self, header: BatchHeader) -> None:
        """Refuse a batch with the error of an earlier batch of its producer, if that was refused and not stored yet."""
        cause = self.refused.cause(header, *self._refused_as)
        if cause is not None:
            raise cause

    def check_gap(self, header: BatchHeader, epoch_start: int) -> None:
        """Raise a retriable error for a batch that is out of order in the log, if an earlier batch is known to be
        missing: it was refused, or may be in flight to the former leader.
        """
        self.check_refused(header)
        self.check_overtaking(header, epoch_start)

    def on_lead(self) -> None:
        """Record that this broker became the leader now."""
        self._leads_since = self.refused.now()

    def check_overtaking(self, header: BatchHeader, epoch_start: int) -> None:
        """Refuse a batch if an earlier batch may be in flight to the former leader: the producer then sends both again.

        `epoch_start` is the start offset of the present leader epoch. A producer that has stored a batch at or above it
        has nothing in flight to the former leader.
        """
        entry = self._log.producers.get(header.producer_id)
        if (
            self.refused.now() - self._leads_since < FORMER_LEADER_SECONDS
            and not (entry and entry.batches and entry.batches[-1].last_offset >= epoch_start)
            and is_missing_batch(header, entry)
        ):
            raise BrokerError(
                ErrorCode.not_leader_or_follower,
                f"a batch before sequence {header.base_sequence} of producer {header.producer_id} was sent to the "
                "former leader: send it first",
            )

    def on_append(self, header: BatchHeader) -> None:
        """Forget refused batches of the producer, now that this batch is stored."""
        self.refused.on_append(header, *self._refused_as)
