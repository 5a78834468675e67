"""OffsetCommit, OffsetFetch and OffsetDelete over the wire."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from penstock.errors import ErrorCode
from penstock.server.security import Operation, ResourceType
from support.group_wire import (
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SETTINGS,
    Member,
    commit_fields,
    committed,
    fetch_fields,
    fetched,
    find,
    joined,
    leave_fields,
    topic_offsets,
)
from support.harness import Harness, serve

LARGEST = 2**63 - 1
FIRST_VERSION_BY_ID = 10


@pytest.mark.parametrize("version", range(2, 11))
def test_offset_commit_works_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        created = await broker.create("a", partitions=3)
        me = await joined(broker)
        asked = commit_fields("g", [topic_offsets("a", {0: 5, 2: 7}, topic_id=created.topic_id)], me)
        [topic] = (await broker.ask(OFFSET_COMMIT, version, asked)).topics
        if version >= FIRST_VERSION_BY_ID:
            assert topic.topic_id == created.topic_id
        else:
            assert topic.name == "a"
        assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(0, 0), (2, 0)]
        epoch = 3 if version >= 6 else -1
        assert await fetched(broker) == {("a", 0): (5, epoch, "note"), ("a", 2): (7, epoch, "note")}

    serve(tmp_path, scenario, SETTINGS)


@pytest.mark.parametrize("version", range(1, 11))
def test_offset_fetch_works_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        created = await broker.create("a", partitions=3)
        assert await committed(broker, "a", {0: 5}) == [0]
        topic = {"name": "a", "partition_indexes": [0, 1]}
        topics = [topic | {"topic_id": created.topic_id}]
        group = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": topics}
        asked = {"group_id": "g", "topics": [topic], "groups": [group], "require_stable": False}
        answer = await broker.ask(OFFSET_FETCH, version, asked)
        if version >= 8:
            [answer] = answer.groups
            assert answer.group_id == "g"
        if version >= 2:
            assert answer.error_code == 0
        [found] = answer.topics
        if version >= FIRST_VERSION_BY_ID:
            assert found.topic_id == created.topic_id
        else:
            assert found.name == "a"
        first, second = found.partitions
        assert (first.partition_index, first.committed_offset, first.metadata) == (0, 5, "note")
        assert (second.partition_index, second.committed_offset, second.metadata) == (1, -1, "")
        assert (first.error_code, second.error_code) == (0, 0)
        if version >= 5:
            assert (first.committed_leader_epoch, second.committed_leader_epoch) == (3, -1)

    serve(tmp_path, scenario, SETTINGS)


@pytest.mark.parametrize("version", [2, 7, 8, 9, 10])
def test_offset_fetch_without_topics_returns_all_authorized_topics(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await broker.create("hidden")
        await committed(broker, "a", {0: 5})
        await committed(broker, "hidden", {0: 6})
        broker.deny((Operation.DESCRIBE, ResourceType.TOPIC, "hidden"))
        answer = await broker.ask(OFFSET_FETCH, version, fetch_fields())
        topics = answer.groups[0].topics if version >= 8 else answer.topics
        assert [[each.committed_offset for each in topic.partitions] for topic in topics] == [[5]]

    serve(tmp_path, scenario, SETTINGS)


def test_offset_fetch_of_several_groups_has_a_result_for_each(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await committed(broker, "a", {0: 1}, "one")
        await committed(broker, "a", {0: 2}, "two")
        asked = [
            {"group_id": name, "member_id": None, "member_epoch": -1, "topics": None}
            for name in ("one", "two", "none", "", "twice", "twice")
        ]
        broker.deny((Operation.DESCRIBE, ResourceType.GROUP, "two"))
        groups = (await broker.ask(OFFSET_FETCH, 8, {"groups": asked, "require_stable": False})).groups
        assert [(group.group_id, group.error_code, len(group.topics)) for group in groups] == [
            ("one", 0, 1),
            ("two", ErrorCode.group_authorization_failed, 0),
            ("none", 0, 0),
            ("", 0, 0),
            ("twice", ErrorCode.invalid_request, 0),
            ("twice", ErrorCode.invalid_request, 0),
        ]

    serve(tmp_path, scenario, SETTINGS)


@pytest.mark.parametrize("version", [1, 2, 7, 8])
def test_offset_fetch_error_is_in_the_field_of_its_version(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await committed(broker, "a", {0: 5})
        broker.deny((Operation.DESCRIBE, ResourceType.GROUP, "g"))
        answer = await broker.ask(OFFSET_FETCH, version, fetch_fields(topics={"a": [0]}))
        denied = ErrorCode.group_authorization_failed
        if version == 1:
            [partition] = answer.topics[0].partitions
            assert (partition.error_code, partition.committed_offset) == (denied, -1)
        elif version < 8:
            assert (answer.error_code, answer.topics) == (denied, ())
        else:
            assert (answer.groups[0].error_code, answer.groups[0].topics) == (denied, ())

    serve(tmp_path, scenario, SETTINGS)


@pytest.mark.parametrize("version", [6, 7, 8])
def test_fetch_from_a_former_coordinator_names_the_partitions_to_ask_for_again(
    tmp_path: Path, version: int
) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await committed(broker, "a", {0: 5})
        shards = broker.context.groups._shards
        for index in list(shards._epochs):
            shards.unload(index)
        answer = await broker.ask(OFFSET_FETCH, version, fetch_fields(topics={"a": [0]}))
        found = answer if version < 8 else answer.groups[0]
        codes = [partition.error_code for topic in found.topics for partition in topic.partitions]
        assert found.error_code == ErrorCode.not_coordinator
        assert codes == ([ErrorCode.unstable_offset_commit] if version >= 7 else [])

    serve(tmp_path, scenario, SETTINGS)


def test_unauthorized_topics_are_reported_apart_from_missing_ones(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await broker.create("b")
        await committed(broker, "a", {0: 5})
        await committed(broker, "b", {0: 6})
        broker.deny((Operation.DESCRIBE, ResourceType.TOPIC, "a"))
        asked = fetch_fields(topics={"a": [0], "b": [0], "missing": [0]})
        [group] = (await broker.ask(OFFSET_FETCH, 9, asked)).groups
        found = [
            (topic.name, each.error_code, each.committed_offset)
            for topic in group.topics
            for each in topic.partitions
        ]
        assert found == [("a", ErrorCode.topic_authorization_failed, -1), ("b", 0, 6), ("missing", 0, -1)]

    serve(tmp_path, scenario, SETTINGS)


def test_unknown_topic_ids_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        created = await broker.create("a")
        await find(broker)
        topics = [
            topic_offsets("", {0: 5}, topic_id=topic_id) for topic_id in (UUID(int=7), None, created.topic_id)
        ]
        answer = await broker.ask(OFFSET_COMMIT, 10, commit_fields("g", topics))
        unknown = ErrorCode.unknown_topic_id
        assert [topic.partitions[0].error_code for topic in answer.topics] == [unknown, unknown, 0]
        asked = [
            {"topic_id": topic_id, "partition_indexes": [0]} for topic_id in (UUID(int=7), created.topic_id)
        ]
        group = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": asked}
        [found] = (await broker.ask(OFFSET_FETCH, 10, {"groups": [group], "require_stable": False})).groups
        codes = [(topic.topic_id, topic.partitions[0].error_code) for topic in found.topics]
        assert codes == [(UUID(int=7), unknown), (created.topic_id, 0)]

    serve(tmp_path, scenario, SETTINGS)


def test_only_invalid_offsets_of_a_commit_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a", partitions=2)
        await broker.create("denied")
        await find(broker)
        broker.deny((Operation.READ, ResourceType.TOPIC, "denied"))
        topics = [
            topic_offsets("missing", {0: 1}),
            topic_offsets("denied", {0: 1}),
            topic_offsets("a", {0: 1, 2: 1, -1: 1, 2**31 - 1: 1}),
            topic_offsets("a", {1: 9}, metadata="x" * 4_097),
            topic_offsets("a", {1: 3}, metadata="ü" * 2_048),
            topic_offsets("a", {0: 2}, metadata=None, leader_epoch=-1),
        ]
        answer = await broker.ask(OFFSET_COMMIT, 9, commit_fields("g", topics))
        unknown = ErrorCode.unknown_topic_or_partition
        codes = [(topic.name, [each.error_code for each in topic.partitions]) for topic in answer.topics]
        assert codes == [
            ("missing", [unknown]),
            ("denied", [ErrorCode.topic_authorization_failed]),
            ("a", [0, unknown, unknown, unknown]),
            ("a", [ErrorCode.offset_metadata_too_large]),
            ("a", [0]),
            ("a", [0]),
        ]
        assert await fetched(broker) == {("a", 0): (2, -1, ""), ("a", 1): (3, 3, "ü" * 2_048)}

    serve(tmp_path, scenario, SETTINGS)


def test_offsets_beyond_the_log_are_committed_unchanged(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a", partitions=4)
        offsets = {0: -5, 1: LARGEST, 2: -(2**63), 3: 0}
        assert await committed(broker, "a", offsets, leader_epoch=-(2**31)) == [0, 0, 0, 0]
        found = await fetched(broker)
        assert {index: offset for (_, index), (offset, _, _) in found.items()} == offsets
        assert {epoch for _, epoch, _ in found.values()} == {-1}

    serve(tmp_path, scenario, SETTINGS)


def test_only_members_of_the_current_generation_may_commit(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        me = await joined(broker)
        for member, code in [
            (me._replace(generation=7), ErrorCode.illegal_generation),
            (me._replace(member_id="stranger"), ErrorCode.unknown_member_id),
            (Member("g", "", -1), ErrorCode.unknown_member_id),
        ]:
            answer = await broker.ask(
                OFFSET_COMMIT, 9, commit_fields("g", [topic_offsets("a", {0: 4})], member)
            )
            assert answer.topics[0].partitions[0].error_code == code
        assert await fetched(broker) == {}

    serve(tmp_path, scenario, SETTINGS)


def test_offset_commit_needs_read_on_the_group(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a", partitions=2)
        await find(broker)
        broker.deny((Operation.READ, ResourceType.GROUP, "g"))
        topics = [topic_offsets("a", {0: 4, 1: 5}), topic_offsets("missing", {0: 4})]
        answer = await broker.ask(OFFSET_COMMIT, 9, commit_fields("g", topics))
        codes = [each.error_code for topic in answer.topics for each in topic.partitions]
        assert codes == [ErrorCode.group_authorization_failed] * 3
        broker.deny()
        assert await fetched(broker) == {}

    serve(tmp_path, scenario, SETTINGS)


def test_group_with_an_empty_id_keeps_its_offsets(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        assert await committed(broker, "a", {0: 5}, "") == [0]
        assert await fetched(broker, "") == {("a", 0): (5, 3, "note")}

    serve(tmp_path, scenario, SETTINGS)


def test_offset_delete_reports_each_partition(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a", partitions=2)
        await broker.create("denied")
        me = await joined(broker)
        asked = commit_fields("g", [topic_offsets("a", {0: 5, 1: 6}), topic_offsets("denied", {0: 7})], me)
        await broker.ask(OFFSET_COMMIT, 9, asked)
        assert (await broker.ask(LEAVE_GROUP, 0, leave_fields("g", me.member_id))).error_code == 0
        topics = [
            {"name": name, "partitions": [{"partition_index": index} for index in indexes]}
            for name, indexes in [("a", [0, 9]), ("denied", [0]), ("missing", [0])]
        ]
        broker.deny((Operation.READ, ResourceType.TOPIC, "denied"))
        answer = await broker.ask(OFFSET_DELETE, 0, {"group_id": "g", "topics": topics})
        unknown = ErrorCode.unknown_topic_or_partition
        codes = [(topic.name, [each.error_code for each in topic.partitions]) for topic in answer.topics]
        assert answer.error_code == 0
        assert codes == [
            ("a", [0, unknown]),
            ("denied", [ErrorCode.topic_authorization_failed]),
            ("missing", [unknown]),
        ]
        assert set(await fetched(broker)) == {("a", 1), ("denied", 0)}

    serve(tmp_path, scenario, SETTINGS)


def test_offsets_of_missing_or_unauthorized_groups_are_not_deleted(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await committed(broker, "a", {0: 5})
        topics = [{"name": "a", "partitions": [{"partition_index": 0}]}]
        broker.deny((Operation.DELETE, ResourceType.GROUP, "g"))
        for group_id, code in [
            ("g", ErrorCode.group_authorization_failed),
            ("missing", ErrorCode.group_id_not_found),
            ("", ErrorCode.invalid_group_id),
        ]:
            answer = await broker.ask(OFFSET_DELETE, 0, {"group_id": group_id, "topics": topics})
            assert (answer.error_code, answer.topics) == (code, ())
        assert set(await fetched(broker)) == {("a", 0)}

    serve(tmp_path, scenario, SETTINGS)


@pytest.mark.parametrize("retention_ms", [LARGEST, -(2**63), 0])
def test_retention_time_of_a_commit_request_is_ignored(tmp_path: Path, retention_ms: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await find(broker)
        asked = commit_fields("g", [topic_offsets("a", {0: 5})], retention_time=retention_ms)
        answer = await broker.ask(OFFSET_COMMIT, 2, asked)
        assert answer.topics[0].partitions[0].error_code == 0
        assert await fetched(broker) == {("a", 0): (5, -1, "note")}

    serve(tmp_path, scenario, SETTINGS)
