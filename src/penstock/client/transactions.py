"""Transactions of a producer, over librdkafka's: begun, given offsets, committed or aborted.

Whatever fails, the outcome is known when a call returns or raises: a transaction that could not be committed has been
aborted, or its producer is of no use any more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from penstock.client.errors import ClientError, ProducerFenced, TimedOut, TransactionAborted, from_kafka

WAIT_S = 1.0
"""Waits come in slices, so that Ctrl-C gets through."""
INIT_TIMEOUT_S = 60.0
STUCK_MARGIN_S = 5.0


class Transactions:
    def __init__(self, producer: Producer, timeout_s: float) -> None:
        """`timeout_s`: how long a transaction may be open."""
        self._producer = producer
        self._timeout_s = timeout_s
        self.is_open = False
        self.is_over = False
        """The producer is of no use any more, and whoever uses it was told."""
        self._insist(producer.init_transactions, INIT_TIMEOUT_S, "the producer could not be registered")

    def begin(self) -> None:
        if self.is_open:
            raise ClientError("a transaction is open: a producer has one at a time")
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise self._over(error, "no transaction can be begun") from None
        self.is_open = True

    def add_offsets(self, offsets: list[TopicPartition], group_metadata: Any) -> None:
        """What a consumer has read is committed with the transaction, or not at all."""
        send = self._producer.send_offsets_to_transaction
        self._insist(
            lambda _: _watched(lambda: send(offsets, group_metadata, self._timeout_s), self._timeout_s),
            self._timeout_s,
            "the offsets were not taken",
        )

    def commit(self) -> None:
        """TransactionAborted where that is what has become of it."""
        self._insist(self._producer.commit_transaction, self._timeout_s, "not committed")
        self.is_open = False

    def abort(self) -> None:
        if self.is_open:
            self.is_open = False
            self._producer.purge()
            self._insist(self._producer.abort_transaction, self._timeout_s, "not aborted")

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
                        f"{what}, the transaction was aborted: {reason.str()} ({reason.name()}); begin it again",
                        reason.name(),
                    ) from None
                if not reason.retriable():
                    raise self._over(error, what) from None
                if time.monotonic() > deadline:
                    raise TimedOut(f"{what} in time: {reason.str()}", reason.name()) from None
            else:
                return

    def _over(self, error: KafkaException, what: str) -> ClientError:
        self.is_over = True
        return fatal(error, what)


def abort_after(error: BaseException, transactions: Transactions) -> None:
    """The error is what people have to know; that the broker has to abort the transaction by itself comes second."""
    try:
        transactions.abort()
    except ClientError as failure:
        error.add_note(f"besides, {failure}")


def _watched(call: Callable[[], None], timeout_s: float) -> None:
    """librdkafka may wait for ever for a group's coordinator that has gone: such a call is left to itself."""
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
        raise TimedOut("the offsets were not taken in time; make a new producer")
    if problems:
        raise problems[0]


def fatal(error: KafkaException, what: str) -> ClientError:
    reason: KafkaError = error.args[0]
    if reason.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
        return ProducerFenced(
            f"{what}: another producer with this transactional_id has taken over, or the transaction was open for "
            "too long; make a new producer",
            reason.name(),
        )
    return from_kafka(error, what)
