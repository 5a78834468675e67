"""CreateTopics, DeleteTopics, CreatePartitions, Metadata and DescribeTopicPartitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.errors import ErrorCode
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType
from support.harness import Harness, new_topic, serve

CREATE, DELETE, CREATE_PARTITIONS, METADATA, DESCRIBE_TOPIC_PARTITIONS = 19, 20, 37, 3, 75
NOT_ASKED = -(2**31)


def create(*topics: Any, validate_only: bool = False) -> Any:
    return {"topics": topics, "timeout": 5_000, "validate_only": validate_only}


def codes(results: Any) -> list[ErrorCode]:
    return [result.error_code for result in results]


def metadata(*topics: Any, auto: bool = False, **flags: bool) -> Any:
    asked = [{"name": topic, "topic_id": None} if isinstance(topic, str) else topic for topic in topics]
    return {
        "topics": asked,
        "allow_auto_topic_creation": auto,
        "include_cluster_authorized_operations": flags.get("cluster_operations", False),
        "include_topic_authorized_operations": flags.get("topic_operations", False),
    }


@pytest.mark.parametrize("version", range(2, 8))
def test_create_topics_works_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        response = await broker.ask(
            CREATE, version, create(new_topic("a", 3, 1, configs={"retention.ms": "5"}))
        )
        [result] = response.topics
        assert (result.name, result.error_code, result.error_message) == ("a", ErrorCode.none, None)
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (3, 1)
            assert result.topic_config_error_code == 0
            configs = {config.name: config for config in result.configs}
            assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
            assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == ("604800000", 5)
        if version >= 7:
            assert result.topic_id == broker.context.image.topics["a"].id
        assert await broker.append("a", b"x", partition=2) == 0, "the answer means that it takes writes"

    serve(tmp_path, scenario)


def test_each_topic_of_a_request_has_its_own_result(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("taken")
        broker.deny(
            (Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME),
            (Operation.CREATE, ResourceType.TOPIC, "denied"),
        )
        response = await broker.ask(
            CREATE,
            7,
            create(
                new_topic("taken"),
                new_topic("denied"),
                new_topic("good"),
                new_topic("../up"),
                new_topic("zero", 0),
                new_topic("many", 2**31 - 1),
                new_topic("copies", 1, 3),
                new_topic("config", configs={"nonsense": "1"}),
                new_topic("null", configs={"retention.ms": None}),
                new_topic("assigned", assignments=[(0, [9])]),
                new_topic("twice"),
                new_topic("twice"),
            ),
        )
        assert codes(response.topics) == [
            ErrorCode.topic_already_exists,
            ErrorCode.topic_authorization_failed,
            ErrorCode.none,
            ErrorCode.invalid_topic_exception,
            ErrorCode.invalid_partitions,
            ErrorCode.invalid_partitions,
            ErrorCode.invalid_replication_factor,
            ErrorCode.invalid_config,
            ErrorCode.invalid_config,
            ErrorCode.invalid_replica_assignment,
            ErrorCode.invalid_request,
            ErrorCode.invalid_request,
        ]
        assert all((result.error_message is None) == (result.error_code == 0) for result in response.topics)
        assert set(broker.context.image.topics) == {"taken", "good"}
        failed = response.topics[0]
        assert (failed.num_partitions, failed.replication_factor, failed.topic_id) == (-1, -1, None)

    serve(tmp_path, scenario)


def test_create_topics_hides_configs_without_authorization(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        broker.deny((Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "a"))
        [result] = (await broker.ask(CREATE, 7, create(new_topic("a")))).topics
        assert result.error_code == 0
        assert result.topic_config_error_code == ErrorCode.topic_authorization_failed
        assert (result.num_partitions, result.configs) == (-1, ())

    serve(tmp_path, scenario)


def test_validate_only_creates_no_topic(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        response = await broker.ask(CREATE, 7, create(new_topic("a", 2), new_topic(""), validate_only=True))
        assert codes(response.topics) == [ErrorCode.none, ErrorCode.invalid_topic_exception]
        assert response.topics[0].num_partitions == 2
        assert not broker.context.image.topics

    serve(tmp_path, scenario)
    assert not [path for path in tmp_path.glob("logs/*") if path.is_dir()]


def test_too_many_topics_in_one_request_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        response = await broker.ask(CREATE, 7, create(*(new_topic(f"t{n}") for n in range(4))))
        assert codes(response.topics) == [ErrorCode.policy_violation] * 4
        assert not broker.context.image.topics

    serve(tmp_path, scenario, {"max.topics.per.request": "3"})


@pytest.mark.parametrize("version", range(1, 7))
def test_delete_topics_works_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        made = await broker.create("a", 2)
        if version >= 6:
            fields = {
                "topics": [{"name": "a", "topic_id": None}, {"name": "b", "topic_id": None}],
                "timeout": 5_000,
            }
        else:
            fields = {"topic_names": ["a", "b"], "timeout": 5_000}
        response = await broker.ask(DELETE, version, fields)
        assert codes(response.responses) == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
        assert [result.name for result in response.responses] == ["a", "b"]
        if version >= 6:
            assert response.responses[0].topic_id == made.topic_id
        assert not broker.context.image.topics

    serve(tmp_path, scenario)
    assert not list(tmp_path.glob("logs/a-*"))


def test_delete_topics_deletes_by_id_and_refuses_ambiguous_topics(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        one, two, three = [(await broker.create(name)).topic_id for name in ("one", "two", "three")]
        unknown = UUID(int=99)
        response = await broker.ask(
            DELETE,
            6,
            {
                "topics": [
                    {"name": None, "topic_id": one},
                    {"name": None, "topic_id": unknown},
                    {"name": "two", "topic_id": two},
                    {"name": None, "topic_id": None},
                    {"name": "three", "topic_id": None},
                    {"name": None, "topic_id": three},
                ],
                "timeout": 5_000,
            },
        )
        assert codes(response.responses) == [
            ErrorCode.none,
            ErrorCode.unknown_topic_id,
            ErrorCode.invalid_request,
            ErrorCode.invalid_request,
            ErrorCode.invalid_request,
            ErrorCode.invalid_request,
        ]
        assert (response.responses[0].name, response.responses[1].name) == ("one", None)
        assert set(broker.context.image.topics) == {"two", "three"}

    serve(tmp_path, scenario)


def test_delete_topics_needs_authorization_and_hides_names_of_ids(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        made = await broker.create("secret")
        broker.deny_all()
        fields = {
            "topics": [{"name": None, "topic_id": made.topic_id}, {"name": "other", "topic_id": None}],
            "timeout": 5_000,
        }
        response = await broker.ask(DELETE, 6, fields)
        assert codes(response.responses) == [ErrorCode.topic_authorization_failed] * 2
        assert [result.name for result in response.responses] == [None, "other"]
        assert set(broker.context.image.topics) == {"secret"}

    serve(tmp_path, scenario)


@pytest.mark.parametrize(
    ("version", "code"), [(1, ErrorCode.invalid_request), (3, ErrorCode.topic_deletion_disabled)]
)
def test_topic_deletion_can_be_disabled(tmp_path: Path, version: int, code: ErrorCode) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        response = await broker.ask(DELETE, version, {"topic_names": ["a"], "timeout": 5_000})
        assert codes(response.responses) == [code]
        assert set(broker.context.image.topics) == {"a"}

    serve(tmp_path, scenario, {"delete.topic.enable": "false"})


@pytest.mark.parametrize("version", range(4))
def test_create_partitions_works_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        for name in ("a", "b", "c", "denied"):
            await broker.create(name, 2)
        await broker.append("a", b"kept")
        broker.deny((Operation.ALTER, ResourceType.TOPIC, "denied"))

        def grow(name: str, count: int, assignments: list[list[int]] | None = None) -> Any:
            chosen = None if assignments is None else [{"broker_ids": replicas} for replicas in assignments]
            return {"name": name, "count": count, "assignments": chosen}

        asked = [grow("a", 4), grow("b", 2), grow("c", 3, [[1]]), grow("unknown", 3), grow("denied", 5)]
        response = await broker.ask(
            CREATE_PARTITIONS, version, {"topics": asked, "timeout": 5_000, "validate_only": False}
        )
        assert codes(response.results) == [
            ErrorCode.none,
            ErrorCode.invalid_partitions,
            ErrorCode.none,
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.topic_authorization_failed,
        ]
        assert await broker.append("a", b"new", partition=3) == 0
        assert await broker.append("a", b"next", partition=0) == 1
        only_asked = {"topics": [grow("a", 9)], "timeout": 5_000, "validate_only": True}
        assert codes((await broker.ask(CREATE_PARTITIONS, version, only_asked)).results) == [ErrorCode.none]
        assert len(broker.context.image.topics["a"].partitions) == 4

    serve(tmp_path, scenario)


@pytest.mark.parametrize("version", range(14))
def test_metadata_works_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        made = await broker.create("a", 2)
        response = await broker.ask(METADATA, version, metadata("a", "missing"))
        [server] = response.brokers
        assert (server.node_id, server.host, server.port) == (1, "127.0.0.1", broker._broker.port)
        found, missing = response.topics
        assert (found.name, found.error_code) == ("a", ErrorCode.none)
        assert missing.name == "missing"
        # Until version 3 a client cannot ask for no topic creation.
        assert missing.error_code == (ErrorCode.none if version < 4 else ErrorCode.unknown_topic_or_partition)
        assert [partition.partition_index for partition in found.partitions] == [0, 1]
        partition = found.partitions[0]
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, (1,), (1,))
        if version >= 1:
            assert response.controller_id == 1
            assert found.is_internal is False
        if version >= 2:
            assert response.cluster_id == broker.context.image.cluster_id
        if version >= 7:
            assert partition.leader_epoch == 0
        if version >= 8:
            assert found.topic_authorized_operations == NOT_ASKED
        if 8 <= version <= 10:
            assert response.cluster_authorized_operations == NOT_ASKED
        if version >= 10:
            assert found.topic_id == made.topic_id
        if version >= 13:
            assert response.error_code == 0

    serve(tmp_path, scenario)


def test_metadata_returns_all_topics_for_null_and_none_for_an_empty_list(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await broker.create("b")

        async def names(version: int, topics: Any) -> list[str]:
            response = await broker.ask(METADATA, version, metadata() | {"topics": topics})
            return [topic.name for topic in response.topics]

        assert await names(0, []) == ["a", "b"]
        assert await names(1, None) == ["a", "b"]
        assert await names(1, []) == []
        assert await names(12, None) == ["a", "b"]
        assert await names(12, []) == []
        broker.deny((Operation.DESCRIBE, ResourceType.TOPIC, "a"))
        assert await names(12, None) == ["b"], "what one may not see is not even named"

    serve(tmp_path, scenario)


def test_metadata_finds_topics_by_id(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        made = await broker.create("a")
        known, unknown = {"name": None, "topic_id": made.topic_id}, {"name": None, "topic_id": UUID(int=9)}
        response = await broker.ask(METADATA, 12, metadata(known, unknown))
        assert [(t.name, t.topic_id, t.error_code) for t in response.topics] == [
            ("a", made.topic_id, ErrorCode.none),
            (None, UUID(int=9), ErrorCode.unknown_topic_id),
        ]
        broker.deny((Operation.DESCRIBE, ResourceType.TOPIC, "a"))
        [hidden] = (await broker.ask(METADATA, 12, metadata(known))).topics
        assert (hidden.name, hidden.error_code) == (None, ErrorCode.topic_authorization_failed)
        [early] = (await broker.ask(METADATA, 11, metadata({"name": "a", "topic_id": made.topic_id}))).topics
        assert early.error_code == ErrorCode.invalid_request

    serve(tmp_path, scenario)


def test_topics_are_created_when_request_and_setting_allow_it(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        response = await broker.ask(METADATA, 12, metadata("new", "no/name", "x" * 250, auto=True))
        assert codes(response.topics) == [
            ErrorCode.none,
            ErrorCode.invalid_topic_exception,
            ErrorCode.invalid_topic_exception,
        ]
        assert len(response.topics[0].partitions) == 3
        assert await broker.append("new", b"at once") == 0
        [kept] = (await broker.ask(METADATA, 12, metadata("other"))).topics
        assert kept.error_code == ErrorCode.unknown_topic_or_partition
        [collision] = (await broker.ask(METADATA, 12, metadata("a.b", auto=True))).topics
        assert collision.error_code == ErrorCode.none
        [collision] = (await broker.ask(METADATA, 12, metadata("a_b", auto=True))).topics
        assert collision.error_code == ErrorCode.invalid_topic_exception
        broker.deny(
            (Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME),
            (Operation.CREATE, ResourceType.TOPIC, "mine"),
        )
        [denied] = (await broker.ask(METADATA, 12, metadata("mine", auto=True))).topics
        assert denied.error_code == ErrorCode.topic_authorization_failed

    serve(tmp_path, scenario, {"num.partitions": "3"})


def test_topics_are_not_created_when_the_setting_forbids_it(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        [missing] = (await broker.ask(METADATA, 12, metadata("new", auto=True))).topics
        assert missing.error_code == ErrorCode.unknown_topic_or_partition
        assert not broker.context.image.topics

    serve(tmp_path, scenario, {"auto.create.topics.enable": "false"})


def test_impossible_topic_creation_gets_a_final_error(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        [refused] = (await broker.ask(METADATA, 12, metadata("new", auto=True))).topics
        assert refused.error_code == ErrorCode.invalid_replication_factor

    serve(tmp_path, scenario, {"default.replication.factor": "3"})


def test_a_name_repeated_many_times_is_answered_once(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        response = await broker.ask(METADATA, 12, metadata(*["same"] * 10_000, auto=True))
        assert codes(response.topics) == [ErrorCode.none]

    serve(tmp_path, scenario)


def test_authorized_operations_are_returned_on_request(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        broker.deny((Operation.DELETE, ResourceType.TOPIC, "a"))
        response = await broker.ask(
            METADATA, 8, metadata("a", cluster_operations=True, topic_operations=True)
        )
        operations = response.topics[0].topic_authorized_operations
        assert operations & 1 << Operation.READ
        assert not operations & 1 << Operation.DELETE
        assert response.cluster_authorized_operations & 1 << Operation.ALTER
        broker.deny((Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME))
        response = await broker.ask(METADATA, 8, metadata(cluster_operations=True))
        assert response.cluster_authorized_operations == 0

    serve(tmp_path, scenario)


def describe(*topics: str, limit: int = 2_000, cursor: tuple[str, int] | None = None) -> Any:
    return {
        "topics": [{"name": name} for name in topics],
        "response_partition_limit": limit,
        "cursor": None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]},
    }


def test_describe_topic_partitions_returns_every_partition_over_pages(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        for name, partitions in (("c", 1), ("a", 3), ("b", 2)):
            await broker.create(name, partitions)
        seen: list[tuple[str, int]] = []
        cursor: tuple[str, int] | None = None
        pages = 0
        while True:
            response = await broker.ask(DESCRIBE_TOPIC_PARTITIONS, 0, describe(limit=2, cursor=cursor))
            page = [
                (topic.name, part.partition_index) for topic in response.topics for part in topic.partitions
            ]
            assert len(page) <= 2
            seen += page
            pages += 1
            if response.next_cursor is None:
                break
            cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)
        assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0)]
        assert pages == 3

    serve(tmp_path, scenario)


def test_describe_topic_partitions_has_a_result_for_each_name(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        made = await broker.create("a")
        await broker.create("hidden")
        broker.deny((Operation.DESCRIBE, ResourceType.TOPIC, "hidden"))
        response = await broker.ask(
            DESCRIBE_TOPIC_PARTITIONS, 0, describe("missing", "a", "hidden", "a", "no/name")
        )
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            ("a", ErrorCode.none),
            ("hidden", ErrorCode.topic_authorization_failed),
            ("missing", ErrorCode.unknown_topic_or_partition),
            ("no/name", ErrorCode.invalid_topic_exception),
        ]
        found = response.topics[0]
        assert found.topic_id == made.topic_id
        assert found.topic_authorized_operations != NOT_ASKED
        [partition] = found.partitions
        assert (partition.leader_id, partition.leader_epoch, partition.isr_nodes) == (1, 0, (1,))
        assert (partition.eligible_leader_replicas, partition.offline_replicas) == ((), ())
        everything = await broker.ask(DESCRIBE_TOPIC_PARTITIONS, 0, describe())
        assert [topic.name for topic in everything.topics] == ["a"]

    serve(tmp_path, scenario)


def test_describe_topic_partitions_refuses_a_cursor_outside_the_request(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        asked = describe("a", "c", cursor=("b", 0))
        response = await broker.ask(DESCRIBE_TOPIC_PARTITIONS, 0, asked)
        assert codes(response.topics) == [ErrorCode.invalid_request] * 2

    serve(tmp_path, scenario)


@pytest.mark.parametrize("limit", [0, -5, 2**31 - 1])
def test_describe_topic_partitions_bounds_extreme_page_sizes(tmp_path: Path, limit: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a", 5)
        response = await broker.ask(DESCRIBE_TOPIC_PARTITIONS, 0, describe(limit=limit, cursor=("a", -3)))
        assert len(response.topics[0].partitions) == (1 if limit <= 0 else 3)

    serve(tmp_path, scenario, {"max.request.partition.size.limit": "3"})
