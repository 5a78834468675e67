from __future__ import annotations

from functools import partial

from penstock.errors import BrokerError, ErrorCode
from penstock.model import Offset
from penstock.replication.waiting import CommitWaiters, DataWaiters


def test_commit_waiters_are_called_in_order_up_to_the_high_watermark() -> None:
    waiters = CommitWaiters()
    called: list[tuple[int, BrokerError | None]] = []

    def note(offset: int, error: BrokerError | None) -> None:
        called.append((offset, error))

    for offset in (2, 4, 6):
        waiters.add(Offset(offset), partial(note, offset))
    waiters.committed(Offset(4))
    assert called == [(2, None), (4, None)]
    assert len(waiters) == 1


def test_retried_batch_is_called_back_after_waiters_for_later_offsets() -> None:
    waiters, called = CommitWaiters(), []
    waiters.add(Offset(9), lambda error: called.append("later"))
    waiters.add(Offset(3), lambda error: called.append("retried"))
    waiters.committed(Offset(8))
    assert called == []
    waiters.committed(Offset(9))
    assert called == ["later", "retried"]


def test_failure_calls_each_waiter_once() -> None:
    waiters = CommitWaiters()
    called: list[BrokerError | None] = []
    error = BrokerError(ErrorCode.kafka_storage_error)
    waiters.add(Offset(1), called.append)
    waiters.fail(error)
    waiters.committed(Offset(1))
    assert called == [error]


def test_data_waiters_are_called_once_and_not_after_removal() -> None:
    waiters, called = DataWaiters(), []

    def stays() -> None:
        called.append("stays")

    def leaves() -> None:
        called.append("leaves")

    waiters.add(stays)
    waiters.add(leaves)
    waiters.discard(leaves)
    waiters.wake()
    waiters.wake()
    assert called == ["stays"]
