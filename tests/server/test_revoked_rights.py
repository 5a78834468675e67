"""A revoked right ends requests that wait for records, at once and without records."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ErrorCode
from penstock.security.acl import AccessControlEntry, Operation, Permission, ResourcePattern, ResourceType
from penstock.security.acl import Principal as User
from support.eventually import eventually_async
from support.harness import Harness, serve

WAIT_MS = 50_000
READS = AccessControlEntry("User:alice", "*", Operation.READ, Permission.ALLOW)
TOPIC = ResourcePattern(ResourceType.TOPIC, "orders")
ENFORCE = {"authorization.mode": "enforce", "super.users": "User:root"}


def fetch_fields(topic_id: Any) -> dict[str, Any]:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1_000_000,
    }
    return {
        "max_wait": WAIT_MS,
        "min_bytes": 1,
        "max_bytes": 1_000_000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic_id": topic_id, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


async def allow(broker: Harness, *entries: AccessControlEntry) -> None:
    """Replace the rules of the topic, as a change in the store does."""
    fields = [
        {
            "resource_type": TOPIC.kind,
            "resource_name": TOPIC.name,
            "resource_pattern_type": TOPIC.pattern,
            "principal": entry.principal,
            "host": entry.host,
            "operation": entry.operation,
            "permission_type": entry.permission,
        }
        for entry in entries
    ]
    other = Harness(broker._broker)
    other.session.principal = User("User", "root")
    if fields:
        answer = await other.ask(30, 3, {"creations": fields})
        assert [each.error_code for each in answer.results] == [0] * len(fields)
        return
    wanted = {
        "resource_type_filter": TOPIC.kind,
        "resource_name_filter": TOPIC.name,
        "pattern_type_filter": TOPIC.pattern,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    await other.ask(31, 3, {"filters": [wanted]})


@pytest.mark.parametrize("change", ["removed", "denied"])
def test_parked_fetch_is_refused_when_its_right_is_revoked(tmp_path: Path, change: str) -> None:
    async def scenario(broker: Harness) -> None:
        broker.session.principal = User("User", "root")
        await broker.create("orders")
        await allow(broker, READS)
        broker.session.principal = User("User", "alice")
        fields = fetch_fields(broker.context.image.topics["orders"].id)
        waiting = asyncio.ensure_future(broker.ask(1, 13, fields))
        parked = broker.context.long_polls.parked
        await eventually_async(lambda: parked)
        started = asyncio.get_running_loop().time()
        if change == "removed":
            await allow(broker)
        else:
            await allow(broker, AccessControlEntry("User:*", "*", Operation.READ, Permission.DENY))
        answer = await waiting
        assert asyncio.get_running_loop().time() - started < 5
        [partition] = answer.responses[0].partitions
        assert partition.error_code == ErrorCode.topic_authorization_failed
        assert not partition.records
        assert not parked

    serve(tmp_path, scenario, ENFORCE)


def test_parked_fetch_waits_on_when_other_rights_change(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        broker.session.principal = User("User", "root")
        await broker.create("orders")
        await allow(broker, READS)
        broker.session.principal = User("User", "alice")
        fields = fetch_fields(broker.context.image.topics["orders"].id)
        waiting = asyncio.ensure_future(broker.ask(1, 13, fields))
        parked = broker.context.long_polls.parked
        await eventually_async(lambda: parked)
        await allow(broker, AccessControlEntry("User:bob", "*", Operation.READ, Permission.ALLOW))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        await broker.append("orders", b"news")
        [partition] = (await waiting).responses[0].partitions
        assert (partition.error_code, bool(partition.records)) == (0, True)

    serve(tmp_path, scenario, ENFORCE)
