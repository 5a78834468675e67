"""Appends of a coordinator's records: what follows a refused batch is refused too."""

from __future__ import annotations

from typing import Any, cast

from penstock.errors import BrokerError, ErrorCode
from penstock.records.batch import TRANSACTIONAL_FLAG, BatchHeader
from penstock.replication.replica import Replica
from penstock.state_log.appender import Appender
from support.manual_clock import ManualClock


class FullDisk:
    """A replica that has room for the batches of clients' transactions alone, which are smaller."""

    def __init__(self) -> None:
        self.appended: list[BatchHeader] = []

    def append_as_leader(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Any:
        if not header.attributes & TRANSACTIONAL_FLAG:
            raise BrokerError(ErrorCode.kafka_storage_error, "no space")
        self.appended.append(header)
        raise AssertionError("a batch was appended behind a refused one")


async def test_batch_of_a_transaction_is_refused_behind_refused_records() -> None:
    """The batch was decided on a state that contains the refused records."""
    replica = FullDisk()
    appender: Appender[bytes] = Appender(cast(Replica, replica), ManualClock(), lambda key: (key, b""))
    errors: list[BrokerError | None] = []

    def refused(error: BrokerError | None) -> None:
        errors.append(error)
        assert error is not None
        appender.close(error)  # as a shard does

    appender.add([b"key"], refused)
    content, header = appender.build_transactional([b"offset"], 7, 0)
    appender.add_transactional(content, header, errors.append)
    assert [error.code for error in errors if error] == [ErrorCode.kafka_storage_error] * 2
    assert replica.appended == []
