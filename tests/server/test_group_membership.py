"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat and LeaveGroup over the wire, in every version."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.shard import GroupShard
from penstock.server.security import Operation, ResourceType
from support.group_wire import (
    ASSIGNMENT,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    GROUP,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SETTINGS,
    SYNC_GROUP,
    Member,
    find,
    heartbeat_fields,
    join_fields,
    joined,
    leave_fields,
    sync_fields,
)
from support.harness import Harness, serve

TRANSACTION, SHARE = 1, 2


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_works_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        asked = {"key": "g", "key_type": GROUP, "coordinator_keys": ["g", "other", "g"]}
        answer = await broker.ask(FIND_COORDINATOR, version, asked)
        found = answer.coordinators if version >= 4 else [answer]
        node = broker.context.image.brokers[broker.context.node_id]
        for coordinator in found:
            assert coordinator.error_code == 0
            assert (coordinator.node_id, coordinator.host, coordinator.port) == (1, node.host, node.port)
        if version >= 4:
            assert [coordinator.key for coordinator in found] == ["g", "other"]

    serve(tmp_path, scenario, SETTINGS)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (77, ErrorCode.invalid_request),
    ],
)
def test_unknown_coordinator_types_are_refused(tmp_path: Path, kind: int, code: ErrorCode) -> None:
    async def scenario(broker: Harness) -> None:
        one = await broker.ask(FIND_COORDINATOR, 1, {"key": "x", "key_type": kind})
        assert (one.error_code, one.node_id, one.host, one.port) == (code, -1, "", -1)
        assert one.error_message
        [several] = (
            await broker.ask(FIND_COORDINATOR, 6, {"key_type": kind, "coordinator_keys": ["x:y:1"]})
        ).coordinators
        assert (several.error_code, several.node_id) == (code, -1)

    serve(tmp_path, scenario, SETTINGS)


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_syncs_and_leaves_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await find(broker)
        answer = await broker.ask(JOIN_GROUP, version, join_fields())
        if version >= 4:
            assert answer.error_code == ErrorCode.member_id_required
            answer = await broker.ask(JOIN_GROUP, version, join_fields(member_id=answer.member_id))
        assert answer.error_code == 0
        assert answer.member_id.startswith("test-")
        assert (answer.generation_id, answer.protocol_name, answer.leader) == (1, "range", answer.member_id)
        [member] = answer.members
        assert (member.member_id, member.metadata) == (answer.member_id, b"topics")
        if version >= 7:
            assert answer.protocol_type == "consumer"
        me = Member("g", answer.member_id, answer.generation_id)
        synced = await broker.ask(SYNC_GROUP, min(version, 5), sync_fields(me))
        assert (synced.error_code, synced.assignment) == (0, ASSIGNMENT)
        beat = await broker.ask(HEARTBEAT, min(version, 4), heartbeat_fields(me))
        assert beat.error_code == 0
        left = await broker.ask(LEAVE_GROUP, min(version, 5), leave_fields("g", me.member_id))
        assert left.error_code == 0
        if version >= 3:
            assert [(gone.member_id, gone.error_code) for gone in left.members] == [(me.member_id, 0)]
        beat = await broker.ask(HEARTBEAT, min(version, 4), heartbeat_fields(me))
        assert beat.error_code == ErrorCode.unknown_member_id

    serve(tmp_path, scenario, SETTINGS)


@pytest.mark.parametrize("version", [0, 6, 7, 9])
def test_refused_join_response_is_decodable_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await find(broker)
        answer = await broker.ask(JOIN_GROUP, version, join_fields("", member_id="x"))
        assert (answer.error_code, answer.member_id) == (ErrorCode.invalid_group_id, "x")
        assert answer.protocol_name == (None if version >= 7 else "")
        answer = await broker.ask(JOIN_GROUP, version, join_fields(session_timeout=1))
        assert answer.error_code == ErrorCode.invalid_session_timeout
        answer = await broker.ask(JOIN_GROUP, version, join_fields(member_id="stranger"))
        assert answer.error_code == ErrorCode.unknown_member_id
        answer = await broker.ask(JOIN_GROUP, version, join_fields(protocols=[]))
        assert answer.error_code == ErrorCode.inconsistent_group_protocol

    serve(tmp_path, scenario, SETTINGS)


def test_version_0_join_uses_the_session_timeout_as_rebalance_timeout(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await find(broker)
        first = await broker.ask(JOIN_GROUP, 0, join_fields(session_timeout=6_000))
        second = asyncio.ensure_future(broker.ask(JOIN_GROUP, 0, join_fields(session_timeout=6_000)))
        await asyncio.sleep(0)
        group = broker.context.groups.shard_of("g").groups["g"]
        deadline_ms = group.next_deadline_ms
        assert deadline_ms is not None
        assert deadline_ms <= broker.context.clock.monotonic() * 1_000 + 6_000
        again = await broker.ask(JOIN_GROUP, 0, join_fields(member_id=first.member_id))
        assert (again.error_code, (await second).error_code) == (0, 0)

    serve(tmp_path, scenario, SETTINGS)


def test_rebalance_timeout_of_0_leaves_a_leader_time_for_its_assignment(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await find(broker, "g")
        answer = await broker.ask(JOIN_GROUP, 3, join_fields(rebalance_timeout=0))
        assert answer.error_code == 0
        deadline_ms = broker.context.groups.shard_of("g").groups["g"].next_deadline_ms
        assert deadline_ms is not None
        assert deadline_ms > broker.context.clock.monotonic() * 1_000 + 10_000

    serve(tmp_path, scenario, SETTINGS)


def test_static_member_is_named_in_responses(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await find(broker)
        answer = await broker.ask(JOIN_GROUP, 5, join_fields(group_instance_id="here"))
        assert answer.error_code == 0, "a static member needs no second request"
        assert answer.member_id.startswith("here-")
        [member] = answer.members
        assert member.group_instance_id == "here"
        me = Member("g", answer.member_id, 1, "here")
        assert (await broker.ask(SYNC_GROUP, 3, sync_fields(me))).error_code == 0
        assert (await broker.ask(HEARTBEAT, 3, heartbeat_fields(me))).error_code == 0
        impostor = me._replace(member_id="other")
        assert (
            await broker.ask(HEARTBEAT, 3, heartbeat_fields(impostor))
        ).error_code == ErrorCode.fenced_instance_id
        left = await broker.ask(LEAVE_GROUP, 3, leave_fields("g", "", instance_id="here"))
        assert [(gone.group_instance_id, gone.error_code) for gone in left.members] == [("here", 0)]

    serve(tmp_path, scenario, SETTINGS)


def test_a_returning_static_leader_keeps_its_assignment_from_version_9_on(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await find(broker)
        first = await broker.ask(JOIN_GROUP, 9, join_fields(group_instance_id="here"))
        me = Member("g", first.member_id, 1, "here")
        assert (await broker.ask(SYNC_GROUP, 5, sync_fields(me))).error_code == 0
        again = await broker.ask(JOIN_GROUP, 9, join_fields(group_instance_id="here"))
        assert (again.error_code, again.generation_id, again.skip_assignment) == (0, 1, True)
        assert again.leader == again.member_id != first.member_id
        assert [member.group_instance_id for member in again.members] == ["here"]

    serve(tmp_path, scenario, SETTINGS)


def test_sync_must_name_the_protocol_from_version_5_on(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        me = await joined(broker)
        for changed in ({"protocol_type": None}, {"protocol_name": None}):
            answer = await broker.ask(SYNC_GROUP, 5, sync_fields(me, **changed))
            assert answer.error_code == ErrorCode.inconsistent_group_protocol
        assert (await broker.ask(SYNC_GROUP, 4, sync_fields(me))).error_code == 0

    serve(tmp_path, scenario, SETTINGS)


@pytest.mark.parametrize("version", [0, 2, 3, 5])
def test_leave_of_a_missing_group_is_refused(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await find(broker)
        answer = await broker.ask(LEAVE_GROUP, version, leave_fields("nowhere", "me"))
        if version < 3:
            assert answer.error_code == ErrorCode.unknown_member_id
        else:
            assert answer.error_code == 0
            assert [member.error_code for member in answer.members] == [ErrorCode.unknown_member_id]

    serve(tmp_path, scenario, SETTINGS)


def test_group_membership_needs_read_on_the_group(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        me = await joined(broker)
        broker.deny((Operation.READ, ResourceType.GROUP, "g"))
        denied = ErrorCode.group_authorization_failed
        assert (await broker.ask(JOIN_GROUP, 3, join_fields())).error_code == denied
        assert (await broker.ask(SYNC_GROUP, 3, sync_fields(me))).error_code == denied
        assert (await broker.ask(HEARTBEAT, 3, heartbeat_fields(me))).error_code == denied
        assert (await broker.ask(LEAVE_GROUP, 3, leave_fields("g", me.member_id))).error_code == denied
        assert (await broker.ask(LEAVE_GROUP, 0, leave_fields("g", me.member_id))).error_code == denied
        broker.deny()
        [group] = (await broker.ask(DESCRIBE_GROUPS, 5, {"groups": ["g"]})).groups
        assert [member.member_id for member in group.members] == [me.member_id]
        assert group.group_state == "Stable"

    serve(tmp_path, scenario, SETTINGS)


def test_find_coordinator_needs_describe(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        broker.deny_all()
        one = await broker.ask(FIND_COORDINATOR, 0, {"key": "g"})
        assert (one.error_code, one.node_id) == (ErrorCode.group_authorization_failed, -1)
        asked = {"key_type": TRANSACTION, "coordinator_keys": ["x"]}
        [other] = (await broker.ask(FIND_COORDINATOR, 4, asked)).coordinators
        assert other.error_code == ErrorCode.transactional_id_authorization_failed
        assert "__consumer_offsets" not in broker.context.image.topics

    serve(tmp_path, scenario, SETTINGS)


def test_no_coordinator_exists_before_the_first_lookup(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        assert (await broker.ask(JOIN_GROUP, 0, join_fields())).error_code == ErrorCode.not_coordinator
        assert (await broker.ask(LIST_GROUPS, 0, {})).groups == ()

    serve(tmp_path, scenario, SETTINGS)


def test_longest_client_id_makes_a_valid_member_id(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await find(broker)
        answer = await broker.ask(JOIN_GROUP, 0, join_fields(), client_id="ü" * 16_383)
        assert answer.error_code in (0, ErrorCode.invalid_request)
        answer = await broker.ask(JOIN_GROUP, 0, join_fields("other"), client_id="ü" * 4_000)
        assert answer.error_code == 0
        assert len(answer.member_id) < 300
        answer = await broker.ask(JOIN_GROUP, 0, join_fields("third"), client_id=None)
        assert answer.error_code == 0

    serve(tmp_path, scenario, SETTINGS)


def test_no_member_is_removed_while_groups_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loading(_: GroupCoordinator, group_id: str) -> GroupShard:
        raise BrokerError(ErrorCode.coordinator_load_in_progress)

    async def scenario(broker: Harness) -> None:
        me = await joined(broker)
        monkeypatch.setattr(GroupCoordinator, "shard_of", loading)
        monkeypatch.setattr(GroupCoordinator, "is_loading", True)
        assert (await broker.ask(HEARTBEAT, 4, heartbeat_fields(me))).error_code == 0
        later = ErrorCode.coordinator_load_in_progress
        assert (await broker.ask(JOIN_GROUP, 4, join_fields())).error_code == later
        assert (await broker.ask(SYNC_GROUP, 4, sync_fields(me))).error_code == later
        assert (await broker.ask(LIST_GROUPS, 3, {})).error_code == later
        [group] = (await broker.ask(DESCRIBE_GROUPS, 5, {"groups": ["g"]})).groups
        assert group.error_code == later

    serve(tmp_path, scenario, SETTINGS)
