"""Audit log: every change once, client events sampled, one line each, nothing stops for it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import SystemClock
from penstock.observability.logs import Logger
from penstock.security.acl import Principal
from penstock.server.audit import MAX_QUEUED, SAMPLED_PER_SECOND, AuditLog
from penstock.server.audit_file import AuditFile
from penstock.threads import ThreadPools
from support.harness import Harness, new_topic, serve
from support.manual_clock import ManualClock

QUIET = Logger(SystemClock(), lambda _: None, lambda now, level, text, fields: "")


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_changes_and_refusals_are_recorded_with_user_host_and_outcome(tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"

    async def scenario(broker: Harness) -> None:
        broker.session.principal = Principal("User", "root")
        await broker.create("orders")
        broker.session.principal = Principal("User", 'eve\n{"event": "forged"}')
        topics = {"topics": [new_topic("more", 1)], "timeout": 5_000, "validate_only": False}
        await broker.ask(19, 7, topics)
        partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
        asked = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": "orders", "partitions": [partition]}],
        }
        await broker.ask(2, 5, asked)

    settings = {
        "authorization.mode": "enforce",
        "super.users": "User:root",
        "audit.log": str(audit),
    }
    serve(tmp_path / "data", scenario, settings)
    found = [
        (
            each["event"],
            each["principal"].split("\n")[0],
            each.get("request"),
            each.get("names"),
            each.get("outcome"),
        )
        for each in lines_of(audit)
    ]
    assert found == [
        ("change", "User:root", "CreateTopics", ["orders"], "ok"),
        ("refused", "User:eve", None, None, None),
        ("change", "User:eve", "CreateTopics", ["more"], "topic_authorization_failed"),
        ("refused", "User:eve", None, None, None),
    ]


async def recorded(write: Any, record: Any) -> AuditLog:
    clock, threads = ManualClock(), ThreadPools()
    audit = AuditLog(write, clock, threads, QUIET)
    record(audit, clock)
    await audit.close()
    threads.close()
    return audit


def test_client_events_are_sampled_and_counted() -> None:
    written: list[bytes] = []

    def record(audit: AuditLog, clock: ManualClock) -> None:
        for _ in range(SAMPLED_PER_SECOND + 500):
            audit.client_event("refused", principal="User:eve")
        clock.advance(1_000)
        audit.client_event("refused", principal="User:eve")

    asyncio.run(recorded(written.append, record))
    lines = [json.loads(line) for line in b"".join(written).splitlines()]
    assert len(lines) == SAMPLED_PER_SECOND + 1
    assert lines[-1]["left_out"] == 500


def test_failing_destination_loses_lines_and_raises_nothing() -> None:
    def refuse(_: bytes) -> None:
        raise OSError(28, "no space")

    def record(audit: AuditLog, clock: ManualClock) -> None:
        for _ in range(MAX_QUEUED + 7):
            audit.change("CreateTopics", "User:a", "h", None, {})

    audit = asyncio.run(recorded(refuse, record))
    assert (audit.written, audit.lost) == (0, MAX_QUEUED + 7)


def test_file_is_rotated_and_a_torn_line_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(b'{"torn')
    file = AuditFile(str(path), 40, 2)
    for number in range(7):
        file.write(b'{"number": %d}\n' % number)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all(len(each.read_bytes()) < 60 for each in tmp_path.iterdir())
    assert path.read_bytes() == b'{"number": 6}\n'


@pytest.mark.parametrize("destination", ["off", "stderr"])
def test_audit_can_be_off_or_go_to_standard_error(
    tmp_path: Path, destination: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders")

    serve(tmp_path, scenario, {"audit.log": destination})
    assert ('"event":"change"' in capfd.readouterr().err) == (destination == "stderr")
