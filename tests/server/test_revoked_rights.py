"""A revoked right ends requests that wait for records, at once and without records."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ErrorCode
from penstock.security.acl import AccessControlEntry, Operation, Permission, ResourcePattern, ResourceType
from penstock.security.acl import Principal as User
from penstock.wire.fetch_by_key import (
    FetchByKeyRequest,
    KeyLookup,
    decode_fetch_by_key_response,
    encode_fetch_by_key_request,
)
from support.eventually import eventually_async
from support.harness import Harness, content_of, serve
from support.queue_wire import QueueClient, exchange

WAIT_MS = 50_000
READS = AccessControlEntry("User:alice", "*", Operation.READ, Permission.ALLOW)
TOPIC = ResourcePattern(ResourceType.TOPIC, "orders")
GROUP = ResourcePattern(ResourceType.GROUP, "billing")
ENFORCE = {
    "authorization.mode": "enforce",
    "super.users": "User:root",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}


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


async def allow(broker: Harness, *entries: AccessControlEntry, on: ResourcePattern = TOPIC) -> None:
    """Add rules of a resource, or remove all of them where none is given."""
    fields = [
        {
            "resource_type": on.kind,
            "resource_name": on.name,
            "resource_pattern_type": on.pattern,
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
        "resource_type_filter": on.kind,
        "resource_name_filter": on.name,
        "pattern_type_filter": on.pattern,
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


async def has_coordinators(broker: Harness) -> bool:
    """Whether the group and its state have coordinators; the first question creates their topics."""
    state = f"{GROUP.name}:{broker.context.image.topics[TOPIC.name].id}:0"
    codes = set()
    for kind, key in ((0, GROUP.name), (2, state)):
        answer = await broker.ask(10, 6, {"key_type": kind, "coordinator_keys": [key]})
        codes.add(answer.coordinators[0].error_code)
    return codes == {0}


@pytest.mark.parametrize("revoked", [TOPIC, GROUP], ids=["topic", "group"])
def test_parked_receive_is_refused_when_a_right_is_revoked(tmp_path: Path, revoked: ResourcePattern) -> None:
    async def scenario(broker: Harness) -> None:
        broker.session.principal = User("User", "root")
        await broker.create("orders")
        await eventually_async(lambda: has_coordinators(broker))
        heartbeat = {"group_id": GROUP.name, "member_id": "A" * 22, "member_epoch": 0, "rack_id": None}
        joined = await broker.ask(76, 1, {**heartbeat, "subscribed_topic_names": ["orders"]})
        assert joined.error_code == 0, joined.error_message
        for resource in (TOPIC, GROUP):
            await allow(broker, READS, on=resource)
        broker.session.principal = User("User", "alice")
        waiting = asyncio.ensure_future(QueueClient(broker, "billing", "orders").ask(wait_ms=WAIT_MS))
        parked = broker.context.long_polls.parked
        await eventually_async(lambda: parked, within_s=15)
        await allow(broker, on=revoked)
        async with asyncio.timeout(5):
            answer = await waiting
        [partition] = answer.partitions
        refusal = {
            TOPIC: ErrorCode.topic_authorization_failed,
            GROUP: ErrorCode.group_authorization_failed,
        }
        assert partition.error_code == refusal[revoked]
        assert not content_of(list(partition.records))
        assert not parked
        await broker.append("orders", b"news")
        assert all(
            each.error_code for each in (await QueueClient(broker, "billing", "orders").ask()).partitions
        )

    serve(tmp_path, scenario, ENFORCE)


def test_parked_lookups_are_refused_when_their_right_is_revoked(tmp_path: Path) -> None:
    lookups = 500

    async def scenario(broker: Harness) -> None:
        broker.session.principal = User("User", "root")
        await broker.create("orders", index_by_key="true")
        await allow(broker, READS)
        await allow(broker, AccessControlEntry("User:bob", "*", Operation.READ, Permission.ALLOW))
        broker.session.principal = User("User", "alice")
        topic_id = broker.context.image.topics["orders"].id
        asked = tuple(
            KeyLookup(number, topic_id, 0, b"k%d" % number, max_wait_ms=WAIT_MS) for number in range(lookups)
        )
        frame = encode_fetch_by_key_request(1, "c", FetchByKeyRequest(asked, ()))
        waiting = asyncio.ensure_future(exchange(broker, frame))
        await eventually_async(lambda: broker.session.keys is not None)
        await allow(broker)
        refused: set[int] = set()
        while len(refused) < lookups:
            async with asyncio.timeout(5):
                results = decode_fetch_by_key_response(await waiting)
            assert {each.error_code for each in results} == {ErrorCode.topic_authorization_failed}
            refused |= {each.id for each in results}
            empty = encode_fetch_by_key_request(2, "c", FetchByKeyRequest((), ()))
            waiting = asyncio.ensure_future(exchange(broker, empty))
        await waiting
        assert broker.session.keys is not None
        broker.session.keys.close()
        assert not broker.context.long_polls.parked

    serve(tmp_path, scenario, ENFORCE)
