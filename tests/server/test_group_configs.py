"""Settings of consumer groups: DescribeConfigs, IncrementalAlterConfigs, AlterConfigs, ListConfigResources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_config_handlers import (
    ALTER,
    BROKER,
    DEFAULT,
    DELETE,
    INCREMENTAL,
    SET,
    STATIC_BROKER,
    TOPIC,
    alter,
    described,
    incremental,
)

from penstock.errors import ErrorCode
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType
from support.group_wire import CONSUMER_GROUP_HEARTBEAT, SETTINGS, consumer_fields, find
from support.harness import Harness, serve

LIST_CONFIG_RESOURCES = 74
CLIENT_METRICS, GROUP = 16, 32
DYNAMIC_GROUP = 8
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
STRANGE_NAMES = ["g", "a/b", ".", "..", "with space", "ümlaut\x00\n", "%2E", "x" * 300]


async def listed(broker: Harness, *types: int, version: int = 1) -> set[tuple[int, str]]:
    answer = await broker.ask(LIST_CONFIG_RESOURCES, version, {"resource_types": types})
    assert answer.error_code == 0
    return {(resource.resource_type, resource.resource_name) for resource in answer.config_resources}


async def heartbeat_interval_ms(broker: Harness, group_id: str) -> int:
    await find(broker, group_id)
    answer = await broker.ask(CONSUMER_GROUP_HEARTBEAT, 1, consumer_fields(group_id))
    assert answer.error_code == 0
    return int(answer.heartbeat_interval.total_seconds() * 1_000)


def test_a_group_has_the_brokers_settings_until_it_has_its_own(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        configs = await described(broker, GROUP, "g", synonyms=True)
        others = {name for name in configs if not name.startswith(("share.", "errors.deadletterqueue."))}
        assert others == {SESSION, HEARTBEAT}
        assert "share.record.lock.duration.ms" in configs
        assert [(place.name, place.value, place.source) for place in configs[HEARTBEAT].synonyms] == [
            ("group.consumer.heartbeat.interval.ms", "3000", STATIC_BROKER),
            ("group.consumer.heartbeat.interval.ms", "5000", DEFAULT),
        ]
        assert await alter(broker, GROUP, "g", (HEARTBEAT, SET, "700")) == 0
        own = (await described(broker, GROUP, "g", synonyms=True))[HEARTBEAT]
        assert (own.value, own.config_source, own.read_only) == ("700", DYNAMIC_GROUP, False)
        assert (own.synonyms[0].name, len(own.synonyms)) == (HEARTBEAT, 3)
        assert await alter(broker, GROUP, "g", (HEARTBEAT, DELETE, None)) == 0
        assert (await described(broker, GROUP, "g"))[HEARTBEAT].value == "3000"

    serve(tmp_path, scenario, {"group.consumer.heartbeat.interval.ms": "3000"})


def test_changed_group_config_applies_at_once(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        assert await heartbeat_interval_ms(broker, "g") == 5_000
        assert await alter(broker, GROUP, "g", (HEARTBEAT, SET, "700")) == 0
        assert await heartbeat_interval_ms(broker, "g") == 700
        assert await heartbeat_interval_ms(broker, "other") == 5_000
        assert await alter(broker, BROKER, "", ("group.consumer.heartbeat.interval.ms", SET, "800")) == 0
        assert await heartbeat_interval_ms(broker, "other") == 800
        assert await heartbeat_interval_ms(broker, "g") == 700

    serve(tmp_path, scenario, SETTINGS)


@pytest.mark.parametrize(
    "change",
    [
        (SESSION, SET, "soon"),
        (SESSION, SET, "0"),
        (SESSION, SET, "4000"),
        (HEARTBEAT, SET, "45000"),
        ("retention.ms", SET, "1"),
        ("consumer.session.timeout", SET, "1"),
    ],
)
def test_invalid_group_settings_are_refused(tmp_path: Path, change: tuple[str, int, str]) -> None:
    async def scenario(broker: Harness) -> None:
        assert await alter(broker, GROUP, "g", change) == ErrorCode.invalid_config
        assert broker.context.image.group_configs == {}

    serve(tmp_path, scenario)


def test_a_group_without_a_name_has_no_settings(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        assert await alter(broker, GROUP, "", (SESSION, SET, "50000")) == ErrorCode.invalid_request

    serve(tmp_path, scenario)


def test_alter_configs_replaces_all_group_configs(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        assert await alter(broker, GROUP, "g", (SESSION, SET, "50000"), (HEARTBEAT, SET, "700")) == 0
        configs = [{"name": HEARTBEAT, "value": "900"}]
        resource = {"resource_type": GROUP, "resource_name": "g", "configs": configs}
        [result] = (await broker.ask(ALTER, 2, {"resources": [resource], "validate_only": False})).responses
        assert result.error_code == 0
        assert broker.context.image.group_overrides() == {"g": {HEARTBEAT: "900"}}

    serve(tmp_path, scenario)


def test_validate_only_changes_no_group_config(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        asked = incremental(GROUP, "g", (SESSION, SET, "50000"), validate_only=True)
        [result] = (await broker.ask(INCREMENTAL, 1, asked)).responses
        assert (result.error_code, broker.context.image.group_configs) == (0, {})

    serve(tmp_path, scenario)


@pytest.mark.parametrize("name", STRANGE_NAMES)
def test_group_settings_can_be_set_changed_and_removed(tmp_path: Path, name: str) -> None:
    async def scenario(broker: Harness) -> None:
        for value in ("50000", "60000"):
            assert await alter(broker, GROUP, name, (SESSION, SET, value)) == 0
            await broker.context.metadata.reload()
            assert broker.context.image.group_overrides() == {name: {SESSION: value}}
        assert await alter(broker, GROUP, name, (SESSION, DELETE, None)) == 0
        assert await alter(broker, GROUP, name, (SESSION, DELETE, None)) == 0
        await broker.context.metadata.reload()
        assert broker.context.image.group_configs == {}

    serve(tmp_path, scenario)


def test_group_settings_need_authorization_on_the_group(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        broker.deny(
            (Operation.ALTER_CONFIGS, ResourceType.GROUP, "g"),
            (Operation.DESCRIBE_CONFIGS, ResourceType.GROUP, "g"),
        )
        denied = ErrorCode.group_authorization_failed
        assert await alter(broker, GROUP, "g", (SESSION, SET, "50000")) == denied
        resource: Any = {"resource_type": GROUP, "resource_name": "g", "configuration_keys": None}
        asked = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
        [result] = (await broker.ask(32, 4, asked)).results
        assert (result.error_code, result.configs) == (denied, ())
        assert broker.context.image.group_configs == {}

    serve(tmp_path, scenario)


def test_list_config_resources_returns_resources_by_type(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        assert await alter(broker, GROUP, "g", (SESSION, SET, "50000")) == 0
        assert await listed(broker) == {(TOPIC, "a"), (BROKER, "1"), (GROUP, "g")}
        assert await listed(broker, GROUP, CLIENT_METRICS) == {(GROUP, "g")}
        answer = await broker.ask(LIST_CONFIG_RESOURCES, 0, {})
        assert (answer.error_code, answer.config_resources) == (0, ())
        answer = await broker.ask(LIST_CONFIG_RESOURCES, 1, {"resource_types": [99]})
        assert (answer.error_code, answer.config_resources) == (ErrorCode.unsupported_version, ())
        broker.deny((Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME))
        answer = await broker.ask(LIST_CONFIG_RESOURCES, 1, {"resource_types": []})
        assert (answer.error_code, answer.config_resources) == (ErrorCode.cluster_authorization_failed, ())

    serve(tmp_path, scenario)
