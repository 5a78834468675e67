"""`Topics` and `Configs` of a cluster, over its routes.

A request that changes something is sent once: where its answer is lost, OutcomeUnknown says that it may have happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.asking import ask_once
from penstock.gateway.backend import ConfigEntry, ConfigResource, NewTopic
from penstock.model import BrokerId
from penstock.net.client import Client
from penstock.net.routes import Routes, TopicRoute, check

PATIENCE_SECONDS = 10.0
_TIMEOUT_MS = 15_000
_CREATE_TOPICS, _DELETE_TOPICS, _DELETE_RECORDS, _CREATE_PARTITIONS = 19, 20, 21, 37
_DESCRIBE_CONFIGS, _INCREMENTAL_ALTER_CONFIGS = 32, 44
_SET, _DELETE = 0, 1
_OF_RESOURCE = frozenset({1, 2, 8})
"""Kafka's sources of a value that was set for this very topic, broker or group."""


class ClusterTopics:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    async def all(self) -> Sequence[TopicRoute]:
        topics = await self._routes.topics()
        return [topics[name] for name in sorted(topics)]

    async def get(self, name: str, *, fresh: bool = False) -> TopicRoute:
        if fresh:
            self._routes.forget(name)
        return await self._routes.topic(name)

    async def create(self, topic: NewTopic, *, validate_only: bool = False) -> None:
        described = {
            "name": topic.name,
            "num_partitions": topic.partitions,
            "replication_factor": topic.replication_factor,
            "assignments": (),
            "configs": [{"name": name, "value": value} for name, value in (topic.configs or {}).items()],
        }
        fields = {"topics": [described], "timeout": _TIMEOUT_MS, "validate_only": validate_only}
        response = await ask_once(self._routes, _CREATE_TOPICS, 7, fields)
        [result] = response.topics
        check(result.error_code, result.error_message)
        self._routes.forget(topic.name)

    async def delete(self, name: str) -> None:
        fields = {"topics": [{"name": name, "topic_id": None}], "timeout": _TIMEOUT_MS}
        response = await ask_once(self._routes, _DELETE_TOPICS, 6, fields)
        [result] = response.responses
        self._routes.forget(name)
        check(result.error_code, result.error_message)

    async def set_partitions(self, name: str, count: int) -> None:
        asked = {"name": name, "count": count, "assignments": None}
        fields = {"topics": [asked], "timeout": _TIMEOUT_MS, "validate_only": False}
        response = await ask_once(self._routes, _CREATE_PARTITIONS, 3, fields)
        [result] = response.results
        self._routes.forget(name)
        check(result.error_code, result.error_message)

    async def truncate(self, name: str, before: Mapping[int, int]) -> Mapping[int, int]:
        """By partition, one after the other; those before the first that fails are truncated."""
        return {
            partition: await self._truncate(name, partition, offset) for partition, offset in before.items()
        }

    async def _truncate(self, name: str, partition: int, offset: int) -> int:
        asked = {"name": name, "partitions": [{"partition_index": partition, "offset": offset}]}

        async def ask(client: Client) -> int:
            response = await client.request(_DELETE_RECORDS, 2, {"topics": [asked], "timeout": _TIMEOUT_MS})
            [result] = response.topics[0].partitions
            check(result.error_code)
            low_watermark: int = result.low_watermark
            return low_watermark

        # What lies before an offset is deleted once, however often it is asked for.
        return await self._routes.at_leader(name, partition, ask, PATIENCE_SECONDS)


class ClusterConfigs:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    async def get(self, kind: ConfigResource, name: str) -> Sequence[ConfigEntry]:
        asked = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        fields = {"resources": [asked], "include_synonyms": False, "include_documentation": True}
        if kind is ConfigResource.BROKER:
            client = await self._broker(name)
            response = await client.request(_DESCRIBE_CONFIGS, 4, fields)
        else:
            response = await self._routes.ask_any(_DESCRIBE_CONFIGS, 4, fields)
        [result] = response.results
        check(result.error_code, result.error_message)
        return [_entry(each) for each in sorted(result.configs, key=lambda each: str(each.name))]

    async def alter(self, kind: ConfigResource, name: str, changes: Mapping[str, str | None]) -> None:
        configs = [
            {"name": option, "config_operation": _DELETE if value is None else _SET, "value": value}
            for option, value in changes.items()
        ]
        asked = {"resource_type": kind, "resource_name": name, "configs": configs}
        fields = {"resources": [asked], "validate_only": False}
        client = await self._broker(name) if kind is ConfigResource.BROKER and name else None
        response = await ask_once(self._routes, _INCREMENTAL_ALTER_CONFIGS, 1, fields, client)
        [result] = response.responses
        check(result.error_code, result.error_message)

    async def _broker(self, name: str) -> Client:
        if not self._routes.brokers:
            await self._routes.topics()
        node_id = BrokerId(int(name)) if name.isascii() and name.isdecimal() else None
        if node_id is None or node_id not in self._routes.brokers:
            raise BrokerError(ErrorCode.broker_id_not_registered, f"there is no broker {name[:20]!r}")
        return await self._routes.broker(node_id)


def _entry(config: Any) -> ConfigEntry:
    return ConfigEntry(
        config.name,
        None if config.is_sensitive else config.value,
        config.config_source not in _OF_RESOURCE,
        config.read_only,
        config.is_sensitive,
        config.documentation or "",
    )
