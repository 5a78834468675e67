"""Topic administration for the archiver: topic configs, archived offsets and truncation."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from penstock.internal_client.api import check_error
from penstock.internal_client.routes import Routes
from penstock.net.broker_connection import BrokerConnection
from penstock.pipeline.offsets import TopicPartition, run
from penstock.pipeline.read_settings import RETRY_SECONDS

ARCHIVE_REQUIRED, ARCHIVE_OFFSETS = "archive.required", "archive.offsets"
_DESCRIBE_CONFIGS, _DESCRIBE_CONFIGS_VERSION = 32, 4
_INCREMENTAL_ALTER_CONFIGS, _INCREMENTAL_ALTER_CONFIGS_VERSION = 44, 1
_DELETE_RECORDS, _DELETE_RECORDS_VERSION = 21, 2
_TOPIC, _SET = 2, 0


def topic_settings(bootstrap: str, topics: list[str], names: list[str]) -> dict[str, dict[str, str]]:
    """Values of these configs by topic. Configs that the cluster does not know are left out."""

    async def ask(routes: Routes) -> dict[str, dict[str, str]]:
        resources = [
            {"resource_type": _TOPIC, "resource_name": topic, "configuration_keys": names} for topic in topics
        ]
        fields = {"resources": resources, "include_synonyms": False, "include_documentation": False}
        response = await routes.ask_any(_DESCRIBE_CONFIGS, _DESCRIBE_CONFIGS_VERSION, fields)
        found = {}
        for result in response.results:
            check_error(result.error_code, result.error_message)
            found[result.resource_name] = {each.name: each.value for each in result.configs}
        return found

    return run(bootstrap, ask)


def note_archived(bootstrap: str, topics: Mapping[str, Mapping[int, int]]) -> None:
    """Set `archive.offsets` of the topics: the archived end offset of each partition."""

    async def ask(routes: Routes) -> None:
        resources = [
            {
                "resource_type": _TOPIC,
                "resource_name": topic,
                "configs": [{"name": ARCHIVE_OFFSETS, "config_operation": _SET, "value": _offsets(offsets)}],
            }
            for topic, offsets in topics.items()
        ]
        fields = {"resources": resources, "validate_only": False}
        response = await routes.ask_any(
            _INCREMENTAL_ALTER_CONFIGS, _INCREMENTAL_ALTER_CONFIGS_VERSION, fields
        )
        for result in response.responses:
            check_error(result.error_code, result.error_message)

    run(bootstrap, ask)


def truncate(bootstrap: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Delete the records before these offsets."""

    async def ask(routes: Routes) -> None:
        for (topic, partition), offset in offsets.items():
            delete = partial(_delete, topic, partition, offset)
            await routes.at_leader(topic, partition, delete, RETRY_SECONDS)

    run(bootstrap, ask)


async def _delete(topic: str, partition: int, offset: int, client: BrokerConnection) -> None:
    fields: dict[str, Any] = {
        "topics": [{"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}],
        "timeout": timedelta(seconds=RETRY_SECONDS / 2),
    }
    response = await client.request(_DELETE_RECORDS, _DELETE_RECORDS_VERSION, fields)
    check_error(response.topics[0].partitions[0].error_code)


def _offsets(offsets: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))
