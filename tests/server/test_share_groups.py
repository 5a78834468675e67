"""Share groups over the wire: heartbeats, assignment, description, offsets and deletion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.cluster.memory import MemoryEnsemble
from penstock.errors import ErrorCode
from penstock.model import ShareKey
from support.eventually import eventually_async
from support.harness import Harness, serve
from support.share_wire import ACCEPT, SETTINGS, ShareMember, configure, loaded

DELETE_GROUPS, LIST_GROUPS, JOIN_GROUP = 42, 16, 11
DESCRIBE_OFFSETS, ALTER_OFFSETS, DELETE_OFFSETS = 90, 91, 92


async def prepared(broker: Harness, partitions: int = 4) -> ShareMember:
    await broker.create("t", partitions)
    await configure(broker, auto_offset_reset="earliest")
    return ShareMember(broker)


def assigned(answer: Any) -> list[int]:
    return [index for topic in answer.assignment.topic_partitions for index in topic.partitions]


async def leave(member: ShareMember) -> None:
    assert (await member.heartbeat(member_epoch=-1)).error_code == 0


def test_first_member_gets_its_partitions_with_its_first_heartbeat(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        member = await prepared(broker)
        answer = await member.join("t")
        assert assigned(answer) == [0, 1, 2, 3]
        assert answer.heartbeat_interval.total_seconds() == 5
        assert (await member.heartbeat()).assignment is None

    serve(tmp_path, scenario, SETTINGS)


def test_more_members_than_partitions_share_them(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await prepared(broker, 2)
        members = [ShareMember(broker, f"m{place}") for place in range(5)]
        for member in members:
            await member.join("t")
        shares: list[list[int]] = []
        for member in members:
            answer = await member.heartbeat(subscribed_topic_names=["t"])
            shares.append(assigned(answer))
        assert [len(each) for each in shares] == [1] * 5
        assert abs(sum(1 for each in shares if each == [0]) - sum(1 for each in shares if each == [1])) == 1

    serve(tmp_path, scenario, SETTINGS)


def test_invalid_share_group_heartbeats_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        member = await prepared(broker)
        await broker.context.groups.find("g")
        expected: dict[str, tuple[dict[str, Any], ErrorCode]] = {
            "no topics": ({"subscribed_topic_names": None}, ErrorCode.invalid_request),
            "no member id": ({"member_id": "", "subscribed_topic_names": ["t"]}, ErrorCode.invalid_request),
            "long member id": ({"member_id": "x" * 37}, ErrorCode.invalid_request),
            "no group": ({"member_epoch": 3}, ErrorCode.group_id_not_found),
            "wrong epoch": ({"member_epoch": -2}, ErrorCode.invalid_request),
        }
        for name, (fields, code) in expected.items():
            assert (await member.heartbeat(**fields)).error_code == code, name
        await member.join("t")
        assert (await member.heartbeat(member_epoch=99)).error_code == ErrorCode.fenced_member_epoch
        stranger = ShareMember(broker, "m2")
        assert (await stranger.heartbeat(member_epoch=1)).error_code == ErrorCode.unknown_member_id

    serve(tmp_path, scenario, SETTINGS)


def test_previous_member_epoch_is_accepted(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        member = await prepared(broker)
        await member.join("t")
        await ShareMember(broker, "m2").join("t")
        before = member.member_epoch
        first = await member.heartbeat()
        assert first.member_epoch > before
        again = await member.heartbeat()  # the answer was lost
        assert again.error_code == 0
        assert assigned(again) == assigned(first)

    serve(tmp_path, scenario, SETTINGS)


def test_share_group_size_is_limited(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        member = await prepared(broker)
        await member.join("t")
        answer = await ShareMember(broker, "m2").heartbeat(subscribed_topic_names=["t"])
        assert answer.error_code == ErrorCode.group_max_size_reached

    serve(tmp_path, scenario, SETTINGS | {"group.share.max.size": "1"})


def test_silent_member_is_removed_and_its_partitions_move(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        member = await prepared(broker)
        await ShareMember(broker, "m2").join("t")
        await member.join("t")

        async def has_all() -> bool:
            answer = await member.heartbeat(subscribed_topic_names=["t"])
            # A heartbeat that a busy machine delayed comes from a member that was removed: it joins again.
            member.member_epoch = 0 if answer.error_code else answer.member_epoch
            return assigned(answer) == [0, 1, 2, 3]

        await eventually_async(has_all, "the silent member lost its partitions", poll_s=0.05)

    settings = {"group.share.session.timeout.ms": "300", "group.share.heartbeat.interval.ms": "50"}
    serve(tmp_path, scenario, SETTINGS | settings)


def test_share_group_refuses_members_of_other_protocols(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        member = await prepared(broker)
        await member.join("t")
        joined = await broker.ask(
            JOIN_GROUP,
            9,
            {
                "group_id": "g",
                "session_timeout": 10_000,
                "rebalance_timeout": 10_000,
                "member_id": "x",
                "group_instance_id": None,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b""}],
                "reason": None,
            },
        )
        assert joined.error_code == ErrorCode.inconsistent_group_protocol
        listed = await broker.ask(LIST_GROUPS, 5, {"states_filter": [], "types_filter": ["share"]})
        assert [(each.group_id, each.group_type, each.group_state) for each in listed.groups] == [
            ("g", "share", "Stable")
        ]
        assert not (
            await broker.ask(LIST_GROUPS, 5, {"states_filter": [], "types_filter": ["classic"]})
        ).groups

    serve(tmp_path, scenario, SETTINGS)


def test_share_group_survives_a_restart(tmp_path: Path) -> None:
    async def before(broker: Harness) -> None:
        member = await prepared(broker)
        await member.join("t")
        (described,) = (await broker.ask(77, 1, DESCRIBE)).groups
        assert described.group_state == "Stable"

    async def after(broker: Harness) -> None:
        await loaded(broker)
        (described,) = (await broker.ask(77, 1, DESCRIBE)).groups
        (member,) = described.members
        assert (member.member_id, member.subscribed_topic_names) == ("m1", ("t",))
        (topic,) = member.assignment.topic_partitions
        assert (topic.topic_name, topic.partitions) == ("t", (0, 1, 2, 3))

    ensemble = MemoryEnsemble()
    serve(tmp_path, before, SETTINGS, ensemble)
    serve(tmp_path, after, SETTINGS, ensemble)


DESCRIBE = {"group_ids": ["g"], "include_authorized_operations": False}


async def offsets(broker: Harness, topics: Any = None) -> dict[int, tuple[int, int]]:
    asked = [{"group_id": "g", "topics": topics}]
    (group,) = (await broker.ask(DESCRIBE_OFFSETS, 1, {"groups": asked})).groups
    assert group.error_code == 0, group.error_message
    return {
        each.partition_index: (each.start_offset, each.lag)
        for topic in group.topics
        for each in topic.partitions
    }


def test_share_group_offsets_have_start_and_lag(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        member = await prepared(broker, 1)
        await broker.append("t", *[b"value"] * 10)
        await member.join("t")
        assert await member.take("t", max_wait=2_000) == [(0, 9, 1)]
        assert await offsets(broker) == {0: (0, 10)}
        await member.acknowledge("t", [(0, 1, [ACCEPT]), (5, 6, [ACCEPT])])
        assert await offsets(broker) == {0: (2, 6)}
        assert await offsets(broker, [{"topic_name": "t", "partitions": [0, 7]}]) == {0: (2, 6), 7: (-1, -1)}

    serve(tmp_path, scenario, SETTINGS)


def test_share_group_offsets_are_reset_only_without_members(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        member = await prepared(broker, 1)
        await broker.append("t", *[b"value"] * 10)
        await member.join("t")
        assert await member.take("t", max_wait=2_000) == [(0, 9, 1)]
        await member.acknowledge("t", [(0, 9, [ACCEPT])])
        topics = [{"topic_name": "t", "partitions": [{"partition_index": 0, "start_offset": 4}]}]
        refused = await broker.ask(ALTER_OFFSETS, 0, {"group_id": "g", "topics": topics})
        assert refused.error_code == ErrorCode.non_empty_group
        await leave(member)
        done = await broker.ask(ALTER_OFFSETS, 0, {"group_id": "g", "topics": topics})
        assert done.error_code == 0
        assert done.responses[0].partitions[0].error_code == 0
        assert await offsets(broker) == {0: (4, 6)}
        again = ShareMember(broker, "m2")
        await again.join("t")
        for _ in range(20):
            if (taken := await again.take("t", max_wait=500)) != []:
                break
        assert taken == [(4, 9, 1)]

    serve(tmp_path, scenario, SETTINGS)


def test_deleted_group_leaves_no_state(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        member = await prepared(broker, 2)
        await member.join("t")
        refused = await broker.ask(DELETE_GROUPS, 2, {"groups_names": ["g"]})
        assert refused.results[0].error_code == ErrorCode.non_empty_group
        await leave(member)
        done = await broker.ask(DELETE_GROUPS, 2, {"groups_names": ["g"]})
        assert done.results[0].error_code == 0
        assert not (await broker.ask(LIST_GROUPS, 5, {"states_filter": [], "types_filter": []})).groups
        (shard,) = broker.context.share.coordinator.shards
        assert len(shard) == 0

    serve(tmp_path, scenario, SETTINGS)


def test_deleted_offsets_are_decided_again(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        member = await prepared(broker, 1)
        await member.join("t")
        await leave(member)
        topics = [{"topic_name": "t"}, {"topic_name": "missing"}]
        done = await broker.ask(DELETE_OFFSETS, 0, {"group_id": "g", "topics": topics})
        codes = [each.error_code for each in done.responses]
        assert codes == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
        assert await offsets(broker) == {}

    serve(tmp_path, scenario, SETTINGS)


def test_share_state_apis_are_refused_to_clients(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        member = await prepared(broker, 1)
        await member.join("t")
        key = ShareKey("g", member.topic_id("t"), 0)
        topics = [{"topic_id": key.topic_id, "partitions": [{"partition": 0, "leader_epoch": 99}]}]
        answer = await broker.ask(84, 0, {"group_id": "g", "topics": topics})
        code = answer.results[0].partitions[0].error_code
        assert code == ErrorCode.cluster_authorization_failed

    serve(tmp_path, scenario, SETTINGS)
