"""Audit log: every change once, client events sampled, one line each, nothing stops for it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import SystemClock
from penstock.cluster.internal_topics import AUDIT_TOPIC
from penstock.errors import ErrorCode
from penstock.model import Offset
from penstock.observability.logs import Logger
from penstock.records.building import NewRecord, build_batch
from penstock.records.iteration import iterate, read_batches
from penstock.security.acl import Principal
from penstock.server.audit import MAX_QUEUED, SAMPLED_PER_SECOND, AuditLog
from penstock.server.audit_file import AuditFile
from penstock.threads import ThreadPools
from support.eventually import eventually_async
from support.harness import Harness, new_topic, serve
from support.manual_clock import ManualClock
from support.whole_brokers import Brokers, run

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
def test_audit_log_can_be_off_or_go_to_standard_error(
    tmp_path: Path, destination: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders")

    serve(tmp_path, scenario, {"audit.log": destination})
    assert ('"event":"change"' in capfd.readouterr().err) == (destination == "stderr")


async def audited(broker: Harness) -> list[dict[str, Any]]:
    """Records of the audit topic at the leader."""
    replica = broker.context.replicas.get(AUDIT_TOPIC, 0)
    end = replica.log.log_end_offset
    content = memoryview(replica.log.read(Offset(0), 1_000_000, below=end, at_least_one=True).read())
    found = [record for header, batch in read_batches(content) for record in iterate(batch, header)]
    return [json.loads(bytes(record.value or b"")) for record in found]


def test_audit_topic_has_the_changes_at_every_broker_and_refuses_clients(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, second = await brokers.start(1), await brokers.start(2)
        for broker, topic in ((first, "a"), (second, "b")):
            broker.session.principal = Principal("User", "root")
            await broker.create(topic)

        async def has_all() -> bool:
            leader = first.context.image.topics[AUDIT_TOPIC].partitions[0].leader
            lines = await audited(first if leader == 1 else second)
            return {name for line in lines for name in line.get("names", ())} == {"a", "b"}

        await eventually_async(lambda: AUDIT_TOPIC in first.context.image.topics)
        await eventually_async(lambda: AUDIT_TOPIC in second.context.image.topics)
        await eventually_async(has_all)
        batch = build_batch([NewRecord(None, b"forged", 1)])
        partitions = [{"index": 0, "records": batch}]
        fields = {"transactional_id": None, "acks": 1, "timeout": 5_000}
        answer = await first.ask(
            0, 9, {**fields, "topic_data": [{"name": AUDIT_TOPIC, "partition_data": partitions}]}
        )
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.invalid_topic_exception
        deleted = await first.ask(20, 5, {"topic_names": [AUDIT_TOPIC], "timeout": 5_000})
        assert deleted.responses[0].error_code == ErrorCode.invalid_topic_exception
        for broker in (first, second):
            assert broker.context.authorization.audit is not None
            assert broker.context.authorization.audit.lost == 0

    settings = {"authorization_mode": "enforce", "super_users": "User:root", "audit_log": "__audit_log"}
    run(tmp_path, scenario, **settings)


def test_audit_samples_commits_without_membership_and_failed_http_logins() -> None:
    written: list[bytes] = []

    def record(audit: AuditLog, clock: ManualClock) -> None:
        for group in ("a", "a", "a", "b"):
            audit.client_event("offsets committed", sample=group, per_second=1, names=[group])

    asyncio.run(recorded(written.append, record))
    lines = [json.loads(line) for line in b"".join(written).splitlines()]
    assert [(each["names"], each.get("left_out", 0)) for each in lines] == [(["a"], 0), (["b"], 2)]


def test_audit_log_records_offset_resets(tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"

    async def scenario(broker: Harness) -> None:
        await broker.create("orders")
        await eventually_async(lambda: broker.context.groups.find("billing"))
        partition = {"partition_index": 0, "committed_offset": 0, "committed_metadata": None}
        fields = {"group_id": "billing", "generation_id_or_member_epoch": -1, "member_id": ""}
        fields["topics"] = [{"name": "orders", "partitions": [partition]}]

        async def is_done() -> bool:
            answer = await broker.ask(8, 7, fields)
            return bool(answer.topics[0].partitions[0].error_code == 0)

        await eventually_async(is_done)

    serve(tmp_path / "data", scenario, {"audit.log": str(audit), "offsets.topic.num.partitions": "1"})
    found = [each for each in lines_of(audit) if each["event"] == "offsets committed"]
    assert found[0]["names"] == ["billing"]
