"""Transactions of a producer, on top of librdkafka's.

When a call returns or raises, the outcome is known: a transaction that could not be committed is aborted, or its
producer cannot be used again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from penstock.client.errors import ClientError, ProducerFenced, TimedOut, TransactionAborted, from_kafka

WAIT_S = 1.0
"""Longest single wait, so that Ctrl-C is handled in time."""
INIT_TIMEOUT_S = 60.0
STUCK_MARGIN_S = 5.0


class Transactions:
    def __init__(self, producer: Producer, timeout_s: float) -> None:
        """Register the producer; `timeout_s` is the longest time a transaction may be open."""
        self._producer = producer
        self._timeout_s = timeout_s
        self.is_open = False
        self.is_over = False
        """True if the producer has failed permanently, and the caller got the exception."""
        self._insist(producer.init_transactions, INIT_TIMEOUT_S, "the producer could not be registered")

    def begin(self) -> None:
        if self.is_open:
            raise ClientError("a transaction is already open; commit or abort it first")
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise self._over(error, "cannot begin a transaction") from None
        self.is_open = True

    def add_offsets(self, offsets: list[TopicPartition], group_metadata: Any) -> None:
        """Commit consumer offsets as part of the transaction."""
        send = self._producer.send_offsets_to_transaction
        self._insist(
            lambda _: _watched(lambda: send(offsets, group_metadata, self._timeout_s), self._timeout_s),
            self._timeout_s,
            "the offsets were not added to the transaction",
        )

    def commit(self) -> None:
        """Commit the transaction. Raises TransactionAborted if it was aborted instead."""
        self._insist(self._producer.commit_transaction, self._timeout_s, "the transaction was not committed")
        self.is_open = False

    def abort(self) -> None:
        if self.is_open:
            self.is_open = False
            self._producer.purge()
            self._insist(self._producer.abort_transaction, self._timeout_s, "the transaction was not aborted")

    def _insist(self, call: Callable[[float], None], timeout_s: float, what: str) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                call(WAIT_S)
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if reason.txn_requires_abort():
                    self.abort()
                    raise TransactionAborted(
                        f"{what}, the transaction was aborted: {reason.str()} ({reason.name()}); begin a new one",
                        reason.name(),
                    ) from None
                if not reason.retriable():
                    raise self._over(error, what) from None
                if time.monotonic() > deadline:
                    raise TimedOut(f"{what} within the timeout: {reason.str()}", reason.name()) from None
            else:
                return

    def _over(self, error: KafkaException, what: str) -> ClientError:
        self.is_over = True
        return fatal(error, what)


def abort_after(error: BaseException, transactions: Transactions) -> None:
    """Abort the transaction after `error`; if the abort fails, its error is added to `error` as a note."""
    try:
        transactions.abort()
    except ClientError as failure:
        error.add_note(f"while aborting the transaction: {failure}")


def _watched(call: Callable[[], None], timeout_s: float) -> None:
    """Run a call in a thread and stop waiting for it after `timeout_s` and a margin: librdkafka may wait forever for a
    lost group coordinator.
    """
    problems: list[KafkaException] = []

    def work() -> None:
        try:
            call()
        except KafkaException as error:
            problems.append(error)

    thread = threading.Thread(target=work, name="penstock-transaction", daemon=True)
    thread.start()
    thread.join(timeout_s + STUCK_MARGIN_S)
    if thread.is_alive():
        raise TimedOut("the offsets were not added to the transaction in time; create a new producer")
    if problems:
        raise problems[0]


def fatal(error: KafkaException, what: str) -> ClientError:
    reason: KafkaError = error.args[0]
    if reason.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
        return ProducerFenced(
            f"{what}: another producer with this transactional_id has taken over, or the transaction was open for "
            "too long; create a new producer",
            reason.name(),
        )
    return from_kafka(error, what)
