"""AlterPartitionReassignments, ListPartitionReassignments and ElectLeaders on one broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.cluster import partition_admin
from penstock.errors import ErrorCode
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType
from support.harness import Harness, serve


async def reassign(
    harness: Harness, *wanted: tuple[str, int, list[int] | None], version: int = 1, **fields: Any
) -> Any:
    topics = [
        {"name": topic, "partitions": [{"partition_index": index, "replicas": replicas}]}
        for topic, index, replicas in wanted
    ]
    return await harness.ask(45, version, {"timeout": 5_000, "topics": topics, **fields})


async def elect(
    harness: Harness, wanted: list[tuple[str, list[int]]] | None, election: int = 0, version: int = 2
) -> Any:
    names: object = wanted and [{"topic": topic, "partitions": indexes} for topic, indexes in wanted]
    fields = {"topic_partitions": names, "timeout": 5_000, "election_type": election}
    if version == 0:
        del fields["election_type"]
    return await harness.ask(43, version, fields)


def codes(response: Any) -> list[ErrorCode]:
    return [partition.error_code for topic in response.responses for partition in topic.partitions]


def elected(response: Any) -> dict[tuple[str, int], ErrorCode]:
    return {
        (topic.topic, result.partition_id): result.error_code
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


@pytest.mark.parametrize("version", [0, 1])
def test_reassignment_has_a_result_for_each_partition(tmp_path: Path, version: int) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create("t")
        response = await reassign(harness, ("t", 0, [1]), ("t", 7, [1]), ("none", 0, [1]), version=version)
        assert response.error_code == ErrorCode.none
        unknown = ErrorCode.unknown_topic_or_partition
        assert codes(response) == [ErrorCode.none, unknown, unknown]
        for target in ([], [1, 1], [2]):
            refused = await reassign(harness, ("t", 0, target), version=version)
            assert codes(refused) == [ErrorCode.invalid_replica_assignment]
        called_off = await reassign(harness, ("t", 0, None), version=version)
        assert codes(called_off) == [ErrorCode.no_reassignment_in_progress]
        twice = await reassign(harness, ("t", 0, [1]), ("t", 0, [1]), version=version)
        assert codes(twice) == [ErrorCode.invalid_request] * 2

    serve(tmp_path, scenario)


def test_reassignment_response_keeps_the_replication_factor_flag(tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create("t")
        response = await reassign(harness, ("t", 0, [1]), allow_replication_factor_change=False)
        assert codes(response) == [ErrorCode.none]
        assert response.allow_replication_factor_change is False

    serve(tmp_path, scenario)


def test_list_partition_reassignments_is_empty_without_a_reassignment(tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create("t", 3)
        for topics in (None, [{"name": "t", "partition_indexes": [0, 9]}, {"name": "none"}]):
            response = await harness.ask(46, 0, {"timeout": 5_000, "topics": topics})
            assert (response.error_code, response.topics) == (ErrorCode.none, ())

    serve(tmp_path, scenario)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_election_is_not_needed_when_the_preferred_replica_leads(tmp_path: Path, version: int) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create("t", 2)
        for election in (0,) if version == 0 else (0, 1):
            response = await elect(harness, [("t", [0, 5])], election, version)
            assert elected(response) == {
                ("t", 0): ErrorCode.election_not_needed,
                ("t", 5): ErrorCode.unknown_topic_or_partition,
            }
            assert elected(await elect(harness, None, election, version)) == {}

    serve(tmp_path, scenario)


def test_an_election_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create("t")
        response = await elect(harness, [("t", [0])], 9)
        assert response.error_code == ErrorCode.invalid_request
        assert elected(response) == {("t", 0): ErrorCode.invalid_request}

    serve(tmp_path, scenario)


def test_reassignments_and_elections_need_alter_on_the_cluster(tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create("t")
        denied = ErrorCode.cluster_authorization_failed
        harness.deny((Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME))
        response = await reassign(harness, ("t", 0, [1]))
        assert (response.error_code, codes(response)) == (denied, [denied])
        assert (await elect(harness, [("t", [0])])).error_code == denied
        assert elected(await elect(harness, [("t", [0])], version=0)) == {("t", 0): denied}
        harness.deny((Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME))
        assert (await harness.ask(46, 0, {"timeout": 5_000, "topics": None})).error_code == denied

    serve(tmp_path, scenario)


def test_a_request_that_names_too_many_partitions_is_refused_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_admin, "MAX_NAMED", 2)

    async def scenario(harness: Harness) -> None:
        await harness.create("t", 3)
        refused = await reassign(harness, ("t", 0, [1]), ("t", 1, [1]), ("t", 2, [1]))
        assert (refused.error_code, refused.responses) == (ErrorCode.policy_violation, ())
        refused = await elect(harness, [("t", [0, 0, 0])])
        assert (refused.error_code, elected(refused)) == (ErrorCode.policy_violation, {})
        assert (await elect(harness, None)).error_code == ErrorCode.none

    serve(tmp_path, scenario)
