"""DescribeConfigs, IncrementalAlterConfigs and AlterConfigs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.config import BROKER_OPTIONS, NUM_PARTITIONS, RETENTION_MS, TOPIC_OPTIONS
from penstock.errors import ErrorCode
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType
from support.harness import Harness, serve

DESCRIBE, ALTER, INCREMENTAL = 32, 33, 44
TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER, STATIC_BROKER, DEFAULT = range(1, 6)


def resource(kind: int, name: str, keys: Sequence[str] | None = None) -> Any:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": keys}


def describe(*resources: Any, synonyms: bool = False, documentation: bool = False) -> Any:
    return {"resources": resources, "include_synonyms": synonyms, "include_documentation": documentation}


def incremental(
    kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> Any:
    configs = [{"name": key, "config_operation": op, "value": value} for key, op, value in changes]
    return {
        "resources": [{"resource_type": kind, "resource_name": name, "configs": configs}],
        "validate_only": validate_only,
    }


async def described(broker: Harness, kind: int, name: str, **options: bool) -> dict[str, Any]:
    [result] = (await broker.ask(DESCRIBE, 4, describe(resource(kind, name), **options))).results
    assert result.error_code == 0, result.error_message
    return {config.name: config for config in result.configs}


async def alter(broker: Harness, kind: int, name: str, *changes: tuple[str, int, str | None]) -> ErrorCode:
    [result] = (await broker.ask(INCREMENTAL, 1, incremental(kind, name, *changes))).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    assert (result.error_message is None) == (result.error_code == 0)
    code: ErrorCode = result.error_code
    return code


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs_describes_topics_and_brokers_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a", retention_ms="5")
        asked = [resource(TOPIC, "a"), resource(BROKER, "1")]
        topic, server = (await broker.ask(DESCRIBE, version, describe(*asked, synonyms=True))).results
        some = resource(TOPIC, "a", ["retention.ms", "no.such"])
        [one] = (await broker.ask(DESCRIBE, version, describe(some, synonyms=True))).results
        assert (topic.resource_type, topic.resource_name, topic.error_code) == (TOPIC, "a", ErrorCode.none)
        assert {config.name for config in topic.configs} == set(TOPIC_OPTIONS)
        assert {config.name for config in server.configs} == set(BROKER_OPTIONS)
        [retention] = one.configs
        assert (retention.name, retention.value, retention.read_only) == ("retention.ms", "5", False)
        assert (retention.config_source, retention.is_sensitive) == (DYNAMIC_TOPIC, False)
        places = [(synonym.name, synonym.value, synonym.source) for synonym in retention.synonyms]
        assert places == [
            ("retention.ms", "5", DYNAMIC_TOPIC),
            ("log.retention.ms", "70", STATIC_BROKER),
            ("log.retention.ms", "1209600000", DEFAULT),
        ]
        if version >= 3:
            assert retention.config_type == RETENTION_MS.kind
            assert retention.documentation is None
        read_only = {config.name for config in server.configs if config.read_only}
        assert read_only == {name for name, option in BROKER_OPTIONS.items() if not option.dynamic}

    serve(tmp_path, scenario, {"log.retention.ms": "70"})


def test_describe_configs_returns_synonyms_and_documentation_on_request(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        assert all(not config.synonyms for config in (await described(broker, TOPIC, "a")).values())
        configs = await described(broker, TOPIC, "a", documentation=True)
        assert configs["retention.ms"].documentation == RETENTION_MS.doc

    serve(tmp_path, scenario)


def test_describe_configs_with_an_empty_list_of_keys_returns_all(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        [result] = (await broker.ask(DESCRIBE, 4, describe(resource(TOPIC, "a", [])))).results
        assert len(result.configs) == len(TOPIC_OPTIONS)

    serve(tmp_path, scenario)


def test_describe_configs_returns_a_reason_for_each_error(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        asked = [
            resource(TOPIC, "missing"),
            resource(TOPIC, "no/name"),
            resource(TOPIC, ""),
            resource(BROKER, "2"),
            resource(BROKER, "one"),
            resource(BROKER_LOGGER, "1"),
            resource(99, "x"),
        ]
        results = (await broker.ask(DESCRIBE, 4, describe(*asked))).results
        assert [result.error_code for result in results] == [
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.invalid_topic_exception,
            ErrorCode.invalid_topic_exception,
            ErrorCode.invalid_request,
            ErrorCode.invalid_request,
            ErrorCode.invalid_request,
            ErrorCode.invalid_request,
        ]
        assert all(result.error_message and not result.configs for result in results)

    serve(tmp_path, scenario)


def test_describe_configs_separates_configs_of_one_broker_and_cluster_wide_ones(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        assert await described(broker, BROKER, "") == {}
        assert await alter(broker, BROKER, "", ("num.partitions", SET, "4")) == ErrorCode.none
        config = (await described(broker, BROKER, "1", synonyms=True))["num.partitions"]
        assert (config.value, config.config_source) == ("4", DYNAMIC_DEFAULT_BROKER)
        assert await alter(broker, BROKER, "1", ("num.partitions", SET, "6")) == ErrorCode.none
        config = (await described(broker, BROKER, "1", synonyms=True))["num.partitions"]
        assert [(place.value, place.source) for place in config.synonyms] == [
            ("6", DYNAMIC_BROKER),
            ("4", DYNAMIC_DEFAULT_BROKER),
            ("2", STATIC_BROKER),
            ("1", DEFAULT),
        ]
        everyones = await described(broker, BROKER, "", synonyms=True)
        assert [(c.name, c.value, c.config_source) for c in everyones.values()] == [
            ("num.partitions", "4", DYNAMIC_DEFAULT_BROKER)
        ]
        assert broker.context.config[NUM_PARTITIONS] == 6
        assert await alter(broker, BROKER, "1", ("num.partitions", DELETE, None)) == ErrorCode.none
        assert broker.context.config[NUM_PARTITIONS] == 4

    serve(tmp_path, scenario, {"num.partitions": "2"})


@pytest.mark.parametrize("version", range(2))
def test_incremental_alter_configs_changes_only_named_configs(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a", segment_ms="9")
        changes = [
            ("retention.ms", SET, "5"),
            ("segment.ms", DELETE, None),
            ("cleanup.policy", APPEND, "compact"),
        ]
        response = await broker.ask(INCREMENTAL, version, incremental(TOPIC, "a", *changes))
        assert response.responses[0].error_code == 0
        assert dict(broker.context.image.topics["a"].configs) == {
            "retention.ms": "5",
            "cleanup.policy": "delete,compact",
        }
        log_config = broker.context.replicas.get("a", 0).log.config
        assert log_config.retention_ms == 5, "the answer means that it is in force"
        assert log_config.compacts
        response = await broker.ask(
            INCREMENTAL,
            version,
            incremental(TOPIC, "a", ("cleanup.policy", SUBTRACT, "delete"), validate_only=True),
        )
        assert response.responses[0].error_code == 0
        assert broker.context.image.topics["a"].configs["cleanup.policy"] == "delete,compact"

    serve(tmp_path, scenario)


def test_last_cleanup_policy_can_be_removed_and_set_again(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        assert await alter(broker, TOPIC, "a", ("cleanup.policy", SUBTRACT, "delete")) == ErrorCode.none
        log_config = broker.context.replicas.get("a", 0).log.config
        assert (log_config.deletes, log_config.compacts) == (False, False)
        assert await alter(broker, TOPIC, "a", ("cleanup.policy", APPEND, "compact")) == ErrorCode.none
        assert broker.context.image.topics["a"].configs["cleanup.policy"] == "compact"

    serve(tmp_path, scenario)


def test_invalid_change_changes_no_setting(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a", segment_ms="9")
        good = ("retention.ms", SET, "5")
        assert await alter(broker, TOPIC, "a", good, ("segment.ms", SET, "x")) == ErrorCode.invalid_config
        assert await alter(broker, TOPIC, "a", good, ("no.such", SET, "1")) == ErrorCode.invalid_config
        assert await alter(broker, TOPIC, "a", good, ("segment.ms", APPEND, "1")) == ErrorCode.invalid_config
        assert await alter(broker, TOPIC, "a", good, ("segment.ms", SET, None)) == ErrorCode.invalid_request
        assert await alter(broker, TOPIC, "a", good, good) == ErrorCode.invalid_request
        assert await alter(broker, TOPIC, "a", ("segment.ms", 9, "1")) == ErrorCode.invalid_request
        assert await alter(broker, TOPIC, "b", good) == ErrorCode.unknown_topic_or_partition
        assert await alter(broker, BROKER, "1", ("node.id", SET, "5")) == ErrorCode.invalid_request
        assert await alter(broker, BROKER, "7", ("num.partitions", SET, "5")) == ErrorCode.invalid_request
        assert await alter(broker, BROKER_LOGGER, "1", ("x", SET, "5")) == ErrorCode.invalid_request
        assert dict(broker.context.image.topics["a"].configs) == {"segment.ms": "9"}

    serve(tmp_path, scenario)


def test_a_resource_named_twice_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        request = incremental(TOPIC, "a", ("retention.ms", SET, "5"))
        response = await broker.ask(INCREMENTAL, 1, request | {"resources": request["resources"] * 2})
        assert [result.error_code for result in response.responses] == [ErrorCode.invalid_request] * 2
        assert not broker.context.image.topics["a"].configs

    serve(tmp_path, scenario)


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces_all_settings(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a", segment_ms="9", retention_ms="8")

        def replace(name: str, value: str | None) -> Any:
            configs = [{"name": name, "value": value}]
            return {
                "resources": [{"resource_type": TOPIC, "resource_name": "a", "configs": configs}],
                "validate_only": False,
            }

        assert (await broker.ask(ALTER, version, replace("retention.ms", "5"))).responses[0].error_code == 0
        assert dict(broker.context.image.topics["a"].configs) == {"retention.ms": "5"}
        refused = (await broker.ask(ALTER, version, replace("retention.ms", None))).responses[0]
        assert refused.error_code == ErrorCode.invalid_request
        assert dict(broker.context.image.topics["a"].configs) == {"retention.ms": "5"}

    serve(tmp_path, scenario)


def test_config_requests_need_authorization(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        broker.deny(
            (Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "a"),
            (Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME),
            (Operation.ALTER_CONFIGS, ResourceType.TOPIC, "a"),
            (Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME),
        )
        asked = [resource(TOPIC, "a"), resource(BROKER, "1")]
        results = (await broker.ask(DESCRIBE, 4, describe(*asked))).results
        denied = [ErrorCode.topic_authorization_failed, ErrorCode.cluster_authorization_failed]
        assert [result.error_code for result in results] == denied
        assert await alter(broker, TOPIC, "a", ("retention.ms", SET, "5")) == denied[0]
        assert await alter(broker, BROKER, "", ("num.partitions", SET, "5")) == denied[1]
        assert not broker.context.image.topics["a"].configs

    serve(tmp_path, scenario)


def test_change_of_a_view_filter_needs_read_on_the_source(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders")
        await broker.create("eu", view_of="orders", view_filter='key == "eu"')
        change = ("view.filter", SET, "true")
        broker.deny((Operation.READ, ResourceType.TOPIC, "orders"))
        assert await alter(broker, TOPIC, "eu", change) == ErrorCode.topic_authorization_failed
        replaced = [{"name": "view.of", "value": "orders"}, {"name": "view.filter", "value": "true"}]
        asked = {
            "resources": [{"resource_type": TOPIC, "resource_name": "eu", "configs": replaced}],
            "validate_only": False,
        }
        refused = (await broker.ask(ALTER, 2, asked)).responses[0]
        assert refused.error_code == ErrorCode.topic_authorization_failed
        assert broker.context.image.topics["eu"].configs["view.filter"] == 'key == "eu"'
        broker.deny()
        assert await alter(broker, TOPIC, "eu", change) == 0
        assert broker.context.image.topics["eu"].configs["view.filter"] == "true"

    serve(tmp_path, scenario)
