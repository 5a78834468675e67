"""ConsumerGroupHeartbeat, ConsumerGroupDescribe, and the feature that tells clients of them (KIP-848)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ErrorCode
from penstock.server.security import Operation, ResourceType
from support.group_wire import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SETTINGS,
    Member,
    commit_fields,
    consumer_fields,
    fetched,
    find,
    joined,
    topic_offsets,
)
from support.harness import Fields, Harness, serve

API_VERSIONS = 18
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
LEAVES, LEAVES_FOR_A_WHILE = -1, -2
AS_BEFORE: Fields = {
    "rebalance_timeout": -1,
    "subscribed_topic_names": None,
    "topic_partitions": None,
}


async def beat(broker: Harness, fields: Fields, version: int = 1) -> Any:
    return await broker.ask(CONSUMER_GROUP_HEARTBEAT, version, fields)


async def describe(broker: Harness, *group_ids: str, version: int = 1, operations: bool = False) -> Any:
    asked = {"group_ids": group_ids, "include_authorized_operations": operations}
    return (await broker.ask(CONSUMER_GROUP_DESCRIBE, version, asked)).groups


def partitions_of(answer: Any) -> dict[Any, list[int]]:
    return {part.topic_id: list(part.partitions) for part in answer.assignment.topic_partitions}


@pytest.mark.parametrize("version", range(2))
def test_a_member_joins_reports_and_leaves(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        topic = await broker.create("a", partitions=2)
        await find(broker)
        fields = consumer_fields(member_id="" if version == 0 else "mine")
        answer = await beat(broker, fields, version)
        assert (answer.error_code, answer.error_message, answer.member_epoch) == (0, None, 1)
        assert answer.heartbeat_interval.total_seconds() == 5
        assert answer.member_id if version == 0 else answer.member_id == "mine"
        assert partitions_of(answer) == {topic.topic_id: [0, 1]}
        owned = [{"topic_id": topic.topic_id, "partitions": [0, 1]}]
        mine = consumer_fields(member_id=answer.member_id, epoch=1)
        report = {**mine, **AS_BEFORE, "topic_partitions": owned}
        again = await beat(broker, report, version)
        assert (again.error_code, again.member_epoch) == (0, 1)
        left = await beat(broker, report | {"member_epoch": LEAVES}, version)
        assert (left.error_code, left.member_epoch) == (0, LEAVES)
        [group] = await describe(broker, "g")
        assert (group.group_state, group.members) == ("Empty", ())

    serve(tmp_path, scenario, SETTINGS)


@pytest.mark.parametrize(
    "changed",
    [
        {"group_id": ""},
        {"member_id": ""},
        {"instance_id": ""},
        {"rack_id": ""},
        {"member_epoch": -3},
        {"member_epoch": LEAVES_FOR_A_WHILE},
        {"rebalance_timeout": -1},
        {"topic_partitions": None},
        {"topic_partitions": [{"topic_id": None, "partitions": [1]}]},
        {"subscribed_topic_names": None},
    ],
    ids=str,
)
def test_invalid_request_is_refused_with_a_reason(tmp_path: Path, changed: Fields) -> None:
    async def scenario(broker: Harness) -> None:
        await find(broker)
        answer = await beat(broker, {**consumer_fields(), **changed})
        assert answer.error_code == ErrorCode.invalid_request
        assert answer.error_message
        assert (answer.member_id, answer.assignment) == (None, None)

    serve(tmp_path, scenario, SETTINGS)


def test_a_member_without_an_id_may_only_join_in_version_0(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await find(broker)
        answer = await beat(broker, {**consumer_fields(member_id="", epoch=3), **AS_BEFORE}, 0)
        assert answer.error_code == ErrorCode.invalid_request

    serve(tmp_path, scenario, SETTINGS)


def test_unknown_sessions_and_wrong_epochs_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await find(broker)
        assert (await beat(broker, consumer_fields())).error_code == 0
        for fields, code in [
            (consumer_fields(member_id="stranger", epoch=1), ErrorCode.unknown_member_id),
            (consumer_fields(epoch=9), ErrorCode.fenced_member_epoch),
            (consumer_fields("missing", epoch=1), ErrorCode.group_id_not_found),
            (consumer_fields("other", server_assignor="dice"), ErrorCode.unsupported_assignor),
            (
                consumer_fields("other", subscribed_topic_names=None, subscribed_topic_regex="("),
                ErrorCode.invalid_regular_expression,
            ),
        ]:
            joining = fields["member_epoch"] == 0
            answer = await beat(broker, fields if joining else {**fields, **AS_BEFORE})
            assert answer.error_code == code
            assert answer.error_message

    serve(tmp_path, scenario, SETTINGS)


def test_regex_subscription_of_a_member_is_assigned_and_described(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders-1")
        await broker.create("other")
        await find(broker)
        fields = consumer_fields(subscribed_topic_names=None, subscribed_topic_regex="orders-.*")
        answer = await beat(broker, fields)
        assert answer.error_code == 0
        [group] = await describe(broker, "g")
        [member] = group.members
        assert member.subscribed_topic_regex == "orders-.*"
        assert [part.topic_name for part in member.target_assignment.topic_partitions] == ["orders-1"]

    serve(tmp_path, scenario, SETTINGS)


def test_membership_needs_authorization_on_group_and_topics(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await find(broker)
        for right, code in [
            ((Operation.READ, ResourceType.GROUP, "g"), ErrorCode.group_authorization_failed),
            ((Operation.DESCRIBE, ResourceType.TOPIC, "a"), ErrorCode.topic_authorization_failed),
        ]:
            broker.deny(right)
            assert (await beat(broker, consumer_fields())).error_code == code
        broker.deny()
        [group] = await describe(broker, "g")
        assert group.error_code == ErrorCode.group_id_not_found, "nothing has happened"

    serve(tmp_path, scenario, SETTINGS)


@pytest.mark.parametrize("version", range(2))
def test_describes_consumer_groups(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        topic = await broker.create("a", partitions=2)
        await joined(broker, "classic")
        await beat(broker, consumer_fields(instance_id="here", rack_id="r1"))
        groups = await describe(broker, "g", "classic", "missing", "", "g", version=version, operations=True)
        group, classic, missing, nameless = groups
        assert (group.error_code, group.group_state, group.group_epoch) == (0, "Stable", 1)
        assert (group.assignment_epoch, group.assignor_name) == (1, "uniform")
        assert group.authorized_operations > 0
        [member] = group.members
        assert (member.member_id, member.instance_id, member.rack_id) == ("m", "here", "r1")
        assert (member.client_id, member.client_host, member.member_epoch) == ("test", "/test", 1)
        assert list(member.subscribed_topic_names) == ["a"]
        for assignment in (member.assignment, member.target_assignment):
            [part] = assignment.topic_partitions
            assert (part.topic_id, part.topic_name, list(part.partitions)) == (topic.topic_id, "a", [0, 1])
        if version >= 1:
            assert member.member_type == CONSUMER_MEMBER
        assert classic.error_code == missing.error_code == ErrorCode.group_id_not_found
        assert classic.error_message
        assert missing.error_message
        assert nameless.error_code == ErrorCode.invalid_group_id

    serve(tmp_path, scenario, SETTINGS)


def test_group_description_hides_unauthorized_topics(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await find(broker)
        await beat(broker, consumer_fields())
        broker.deny((Operation.DESCRIBE, ResourceType.TOPIC, "a"))
        [group] = await describe(broker, "g")
        assert (group.error_code, group.members) == (ErrorCode.topic_authorization_failed, ())
        broker.deny((Operation.DESCRIBE, ResourceType.GROUP, "g"))
        [group] = await describe(broker, "g")
        assert group.error_code == ErrorCode.group_authorization_failed

    serve(tmp_path, scenario, SETTINGS)


def test_members_commit_with_their_epoch(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await find(broker)
        await beat(broker, consumer_fields())
        topics = [topic_offsets("a", {0: 4})]
        for version, epoch, code in [
            (9, 1, ErrorCode.none),
            (9, 0, ErrorCode.stale_member_epoch),
            (8, 0, ErrorCode.unsupported_version),
        ]:
            asked = commit_fields("g", topics, Member("g", "m", epoch))
            answer = await broker.ask(OFFSET_COMMIT, version, asked)
            assert answer.topics[0].partitions[0].error_code == code
        assert await fetched(broker) == {("a", 0): (4, 3, "note")}
        for member_id, epoch, code in [
            ("m", 1, ErrorCode.none),
            ("m", 0, ErrorCode.stale_member_epoch),
            ("stranger", 1, ErrorCode.unknown_member_id),
        ]:
            group = {"group_id": "g", "member_id": member_id, "member_epoch": epoch, "topics": None}
            [found] = (await broker.ask(OFFSET_FETCH, 9, {"groups": [group], "require_stable": False})).groups
            assert found.error_code == code

    serve(tmp_path, scenario, SETTINGS)


@pytest.mark.parametrize("version", [3, 4])
def test_api_versions_announces_the_consumer_protocol(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        asked = {"client_software_name": "test", "client_software_version": "1"}
        answer = await broker.ask(API_VERSIONS, version, asked)
        assert answer.finalized_features_epoch >= 0
        finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        assert finalized["group.version"] == 1
        supported = [
            (feature.name, feature.min_version, feature.max_version) for feature in answer.supported_features
        ]
        assert (("group.version", 0, 1) in supported) == (version >= 4)

    serve(tmp_path, scenario)


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("test", "1 "), ("te\nst", "1"), ("-test", "1")])
def test_invalid_client_software_name_is_refused(tmp_path: Path, name: str, version: str) -> None:
    async def scenario(broker: Harness) -> None:
        asked = {"client_software_name": name, "client_software_version": version}
        answer = await broker.ask(API_VERSIONS, 3, asked)
        assert (answer.error_code, answer.api_keys) == (ErrorCode.invalid_request, ())

    serve(tmp_path, scenario)
