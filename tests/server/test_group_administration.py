"""ListGroups, DescribeGroups and DeleteGroups over the wire."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ErrorCode
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType
from support.group_wire import (
    ASSIGNMENT,
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    SETTINGS,
    committed,
    consumer_fields,
    fetched,
    find,
    joined,
)
from support.harness import Harness, serve

NOT_ASKED = -(2**31)


async def some_groups(broker: Harness) -> None:
    """Create three groups: `stable` has a member, `empty` only offsets, and `new` is a consumer group of
    KIP-848.
    """
    await broker.create("a")
    await joined(broker, "stable")
    await committed(broker, "a", {0: 1}, "empty")
    answer = await broker.ask(CONSUMER_GROUP_HEARTBEAT, 1, consumer_fields("new"))
    assert answer.error_code == 0


async def listed(broker: Harness, version: int = 5, **filters: list[str]) -> set[str]:
    asked = {"states_filter": [], "types_filter": [], **filters}
    answer = await broker.ask(LIST_GROUPS, version, asked)
    assert answer.error_code == 0
    return {group.group_id for group in answer.groups}


@pytest.mark.parametrize("version", range(6))
def test_list_groups_works_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await some_groups(broker)
        answer = await broker.ask(LIST_GROUPS, version, {"states_filter": [], "types_filter": []})
        assert answer.error_code == 0
        groups = {group.group_id: group for group in answer.groups}
        assert {name: group.protocol_type for name, group in groups.items()} == {
            "stable": "consumer",
            "empty": "",
            "new": "consumer",
        }
        if version >= 4:
            states = {name: group.group_state for name, group in groups.items()}
            assert states == {"stable": "Stable", "empty": "Empty", "new": "Stable"}
        if version >= 5:
            types = {name: group.group_type for name, group in groups.items()}
            assert types == {"stable": "classic", "empty": "classic", "new": "consumer"}

    serve(tmp_path, scenario, SETTINGS)


def test_list_groups_filters_by_state_and_type_in_any_case(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await some_groups(broker)
        assert await listed(broker, 4, states_filter=["sTaBle"]) == {"stable", "new"}
        assert await listed(broker, states_filter=["EMPTY", "dead"]) == {"empty"}
        assert await listed(broker, types_filter=["Consumer"]) == {"new"}
        assert await listed(broker, types_filter=["classic"], states_filter=["stable"]) == {"stable"}
        assert await listed(broker, states_filter=["nonsense"]) == set()
        assert await listed(broker, types_filter=["share"]) == set()

    serve(tmp_path, scenario, SETTINGS)


def test_list_groups_returns_only_authorized_groups(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await some_groups(broker)
        broker.deny((Operation.DESCRIBE, ResourceType.GROUP, "stable"))
        assert await listed(broker) == {"stable", "empty", "new"}, "who may describe the cluster sees all"
        broker.deny(
            (Operation.DESCRIBE, ResourceType.GROUP, "stable"),
            (Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME),
        )
        assert await listed(broker) == {"empty", "new"}
        broker.deny_all()
        assert await listed(broker) == set()

    serve(tmp_path, scenario, SETTINGS)


@pytest.mark.parametrize("version", range(7))
def test_describe_groups_works_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await some_groups(broker)
        asked = {
            "groups": ["stable", "empty", "missing", "new", "stable"],
            "include_authorized_operations": False,
        }
        stable, empty, missing, new = (await broker.ask(DESCRIBE_GROUPS, version, asked)).groups
        assert (stable.error_code, stable.group_id, stable.group_state) == (0, "stable", "Stable")
        assert (stable.protocol_type, stable.protocol_data) == ("consumer", "range")
        [member] = stable.members
        assert (member.client_id, member.client_host) == ("test", "/test")
        assert (member.member_metadata, member.member_assignment) == (b"topics", ASSIGNMENT)
        assert (empty.error_code, empty.group_state, empty.members) == (0, "Empty", ())
        for group in (missing, new):
            assert (group.group_state, group.members) == ("Dead", ())
            assert group.error_code == (ErrorCode.group_id_not_found if version >= 6 else 0)
        if version >= 6:
            assert missing.error_message
            assert new.error_message
        if version >= 3:
            assert stable.authorized_operations == NOT_ASKED

    serve(tmp_path, scenario, SETTINGS)


def test_describe_groups_returns_authorized_operations_on_request(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await some_groups(broker)
        broker.deny((Operation.DELETE, ResourceType.GROUP, "stable"))
        asked = {"groups": ["stable", "missing"], "include_authorized_operations": True}
        stable, missing = (await broker.ask(DESCRIBE_GROUPS, 6, asked)).groups
        may = {Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}
        assert stable.authorized_operations == sum(1 << operation for operation in may)
        assert missing.authorized_operations == NOT_ASKED

    serve(tmp_path, scenario, SETTINGS)


@pytest.mark.parametrize("version", [0, 6])
def test_describe_groups_needs_authorization(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await some_groups(broker)
        broker.deny_all()
        asked = {"groups": ["stable", "missing"], "include_authorized_operations": True}
        for group in (await broker.ask(DESCRIBE_GROUPS, version, asked)).groups:
            assert (group.error_code, group.members) == (ErrorCode.group_authorization_failed, ())

    serve(tmp_path, scenario, SETTINGS)


@pytest.mark.parametrize("version", range(3))
def test_delete_groups_works_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await some_groups(broker)
        await committed(broker, "a", {0: 1}, "")
        names = ["stable", "empty", "missing", "new", "", "empty"]
        results = (await broker.ask(DELETE_GROUPS, version, {"groups_names": names})).results
        assert [(result.group_id, result.error_code) for result in results] == [
            ("stable", ErrorCode.non_empty_group),
            ("empty", 0),
            ("missing", ErrorCode.group_id_not_found),
            ("new", ErrorCode.non_empty_group),
            ("", 0),
        ]
        assert await listed(broker) == {"stable", "new"}
        assert await fetched(broker, "empty") == {}

    serve(tmp_path, scenario, SETTINGS)


def test_delete_groups_needs_authorization(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await some_groups(broker)
        broker.deny((Operation.DELETE, ResourceType.GROUP, "empty"))
        [result] = (await broker.ask(DELETE_GROUPS, 2, {"groups_names": ["empty"]})).results
        assert result.error_code == ErrorCode.group_authorization_failed
        assert await fetched(broker, "empty") == {("a", 0): (1, 3, "note")}

    serve(tmp_path, scenario, SETTINGS)


def test_a_group_that_was_deleted_can_be_used_again(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await find(broker)
        await committed(broker, "a", {0: 1})
        await broker.ask(DELETE_GROUPS, 2, {"groups_names": ["g"]})
        me = await joined(broker)
        assert me.generation == 1
        assert await fetched(broker) == {}

    serve(tmp_path, scenario, SETTINGS)
