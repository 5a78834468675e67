"""APIs that Kafka's own tools and admin clients call: quorum, features, brokers, log directories, client metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.config import LOG_DIR
from penstock.errors import ErrorCode
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType
from support.harness import Harness, serve

ALTER_LOG_DIRS, DESCRIBE_LOG_DIRS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER = 34, 35, 32, 44
DESCRIBE_QUORUM, UPDATE_FEATURES, UNREGISTER_BROKER = 55, 57, 64
CLIENT_METRICS = 16
METADATA_QUORUM = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_describe_quorum_shows_the_controller_as_only_voter(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.context.metadata.until(lambda image: image.controller_id >= 0)
        response = await broker.ask(DESCRIBE_QUORUM, version, METADATA_QUORUM)
        assert response.error_code == 0
        [topic] = response.topics
        [partition] = topic.partitions
        assert (topic.topic_name, partition.partition_index, partition.error_code) == (
            "__cluster_metadata",
            0,
            0,
        )
        assert partition.leader_id == broker.context.node_id
        assert partition.leader_epoch >= 1
        assert [voter.replica_id for voter in partition.current_voters] == [broker.context.node_id]
        assert partition.observers == ()
        before = partition.high_watermark
        await broker.create("a")
        response = await broker.ask(DESCRIBE_QUORUM, version, METADATA_QUORUM)
        assert response.topics[0].partitions[0].high_watermark > before
        if version >= 2:
            [node] = response.nodes
            assert node.node_id == broker.context.node_id
            assert node.listeners[0].port == broker.context.image.brokers[node.node_id].port

    serve(tmp_path, scenario)


def test_describe_quorum_of_another_topic_or_without_the_right_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        asked = {"topics": [{"topic_name": "a", "partitions": [{"partition_index": 0}]}]}
        response = await broker.ask(DESCRIBE_QUORUM, 2, asked)
        assert response.topics[0].partitions[0].error_code == ErrorCode.unknown_topic_or_partition
        broker.deny((Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME))
        response = await broker.ask(DESCRIBE_QUORUM, 2, METADATA_QUORUM)
        assert response.error_code == ErrorCode.cluster_authorization_failed

    serve(tmp_path, scenario)


def features(version: int, **levels: int) -> Any:
    kind: dict[str, Any] = {"allow_downgrade": False} if version == 0 else {"upgrade_type": 1}
    updates = [
        {"feature": name.replace("_", "."), "max_version_level": level, **kind}
        for name, level in levels.items()
    ]
    return {"timeout": 1_000, "feature_updates": updates, "validate_only": False}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_update_features_accepts_only_the_current_levels(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        response = await broker.ask(UPDATE_FEATURES, version, features(version, group_version=1))
        assert response.error_code == 0
        both = features(version, group_version=1, transaction_version=1, metadata_version=25)
        response = await broker.ask(UPDATE_FEATURES, version, both)
        refused = ErrorCode.invalid_update_version
        if version < 2:
            assert response.error_code == 0
            assert [result.error_code for result in response.results] == [0, refused, refused]
        else:
            assert response.error_code == refused
            assert "the level is 2" in response.error_message

    serve(tmp_path, scenario)


def test_unregister_broker_refuses_running_and_unknown_brokers(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        response = await broker.ask(UNREGISTER_BROKER, 0, {"broker_id": broker.context.node_id})
        assert response.error_code == ErrorCode.invalid_request
        assert "is running" in response.error_message
        response = await broker.ask(UNREGISTER_BROKER, 0, {"broker_id": 77})
        assert response.error_code == ErrorCode.broker_id_not_registered
        broker.deny((Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME))
        response = await broker.ask(UNREGISTER_BROKER, 0, {"broker_id": 77})
        assert response.error_code == ErrorCode.cluster_authorization_failed

    serve(tmp_path, scenario)


@pytest.mark.parametrize("version", [1, 2])
def test_replicas_cannot_be_moved_between_log_directories(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a", partitions=1)

        async def code(path: str, topic: str, partition: int) -> ErrorCode:
            asked = {"dirs": [{"path": path, "topics": [{"name": topic, "partitions": [partition]}]}]}
            response = await broker.ask(ALTER_LOG_DIRS, version, asked)
            [result] = response.results
            assert result.topic_name == topic
            found: ErrorCode = result.partitions[0].error_code
            return found

        here = str(Path(broker.context.config[LOG_DIR]).absolute())
        assert await code("/elsewhere", "a", 0) == ErrorCode.log_dir_not_found
        assert await code(here, "a", 0) == ErrorCode.none
        assert await code(here, "a", 1) == ErrorCode.unknown_topic_or_partition
        broker.deny((Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME))
        assert await code(here, "a", 0) == ErrorCode.cluster_authorization_failed

    serve(tmp_path, scenario)


def test_describe_log_dirs_says_that_the_directory_is_not_cordoned(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        [result] = (await broker.ask(DESCRIBE_LOG_DIRS, 5, {"topics": None})).results
        assert result.is_cordoned is False

    serve(tmp_path, scenario)


def test_client_metrics_are_described_with_defaults_and_cannot_be_set(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        resource = {"resource_type": CLIENT_METRICS, "resource_name": "mine", "configuration_keys": None}
        asked = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
        [result] = (await broker.ask(DESCRIBE_CONFIGS, 4, asked)).results
        assert result.error_code == 0
        assert {config.name: config.value for config in result.configs} == {
            "interval.ms": "300000",
            "match": "",
            "metrics": "",
        }
        change = {"name": "interval.ms", "config_operation": 0, "value": "1000"}
        named = {"resource_type": CLIENT_METRICS, "resource_name": "mine", "configs": [change]}
        altered = {"resources": [named], "validate_only": False}
        [response] = (await broker.ask(INCREMENTAL_ALTER, 1, altered)).responses
        assert response.error_code == ErrorCode.invalid_request
        assert "no client metrics" in response.error_message

    serve(tmp_path, scenario)
