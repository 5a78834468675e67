"""Records of coordinators and markers that are committed while their partition comes under min ISR."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import BrokerError, ErrorCode
from penstock.model import TopicPartition
from penstock.records.control import Marker
from penstock.replication.replica import Replica
from penstock.state_log.appender import Appender, is_stored
from support.eventually import eventually_async
from support.harness import Harness, serve

NAME = TopicPartition("orders", 0)


def shrink_after_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [False]
    monkeypatch.setattr(Replica, "is_under_min_insync", property(lambda _: checks.pop() if checks else True))


def test_coordinator_learns_that_its_records_are_stored_under_min_isr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create(NAME.topic)
        replica = broker.context.replicas.get(NAME.topic, NAME.partition)
        appender: Appender[bytes] = Appender(replica, broker.context.clock, lambda key: (key, None))
        errors: list[BrokerError | None] = []
        shrink_after_the_check(monkeypatch)
        appender.check_replicas()
        appender.add([b"key"], errors.append)
        [error] = await eventually_async(lambda: errors)
        assert error is not None
        assert error.code is ErrorCode.not_enough_replicas_after_append
        assert is_stored(error)
        monkeypatch.undo()

    serve(tmp_path, scenario)


def test_marker_that_is_committed_under_min_isr_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create(NAME.topic)
        shrink_after_the_check(monkeypatch)
        written = await broker.context.marker_writer.write(Marker(7, 0, True, 1), 1, [NAME])
        monkeypatch.undo()
        assert written == {NAME: ErrorCode.not_enough_replicas_after_append}
        assert broker.context.replicas.get(NAME.topic, NAME.partition).log.log_end_offset == 1

    serve(tmp_path, scenario)
