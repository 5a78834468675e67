"""Settings of topics, brokers and groups: describe and alter.

The settings of one broker are read from that broker, because only it knows the settings that it was started
with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.config import ConfigSource
from penstock.config.resources import ConfigOperation, ConfigResourceType
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.api import ClientApi, check_error
from penstock.internal_client.inspection import QuestionArguments, ask_broker
from penstock.internal_client.routes import Routes
from penstock.model import BrokerId
from penstock.net.acting import own_requests
from penstock.net.broker_connection import BrokerConnection

_DESCRIBE_CONFIGS = ClientApi(32, 4)
_INCREMENTAL_ALTER_CONFIGS = ClientApi(44, 1)
_LIST_CONFIG_RESOURCES = ClientApi(74, 1)
_OWN_SETTINGS = {ConfigResourceType.TOPIC: "topic_configs", ConfigResourceType.GROUP: "group_configs"}
NAMES_PER_QUESTION = 500
"""Number of resources in one request for their own settings. A broker answers it in a few milliseconds."""
_SET_ON_RESOURCE = frozenset(
    {ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_GROUP_CONFIG}
)

Changes = Mapping[str, str | None]
"""New values by the name of the setting; None returns a setting to its default."""


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting of a resource, as DescribeConfigs shows it."""

    name: str
    value: str | None
    """Value in force; None for a sensitive setting."""
    source: int
    """Kafka's code for the source of the value."""
    is_read_only: bool
    is_sensitive: bool
    documentation: str

    @property
    def is_default(self) -> bool:
        """True if the value was not set on this topic, broker or group itself."""
        return self.source not in _SET_ON_RESOURCE


class ConfigCalls:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    async def names(self, kind: ConfigResourceType) -> list[str]:
        """Names of all resources of a kind that have settings, sorted, including names that the user may not see."""
        with own_requests():  # The gateway shows a client the resources that the client may describe.
            response = await self._routes.at_any(
                lambda each: _LIST_CONFIG_RESOURCES.call(each, {"resource_types": [kind]})
            )
        check_error(response.error_code)
        return sorted(each.resource_name for each in response.config_resources)

    async def get(self, kind: ConfigResourceType, name: str) -> Sequence[ConfigEntry]:
        """Return all settings of one resource, sorted by name. An empty name stands for all brokers."""
        return (await self.describe(kind, [name], with_documentation=True))[name]

    async def describe(
        self,
        kind: ConfigResourceType,
        names: Sequence[str],
        options: Sequence[str] | None = None,
        *,
        skips_refused: bool = False,
        with_documentation: bool = False,
    ) -> dict[str, Sequence[ConfigEntry]]:
        """Return the settings of several topics or groups, or of one broker: those in `options`, or all if it
        is None.

        With `skips_refused`, names that do not exist or may not be described are left out. The documentation
        is most of a response, so it is requested only `with_documentation`.
        """
        resources = [
            {"resource_type": kind, "resource_name": name, "configuration_keys": options} for name in names
        ]
        fields = {
            "resources": resources,
            "include_synonyms": False,
            "include_documentation": with_documentation,
        }
        node_id = await self._broker(names[0]) if kind is ConfigResourceType.BROKER and names[0] else None
        if node_id is None:
            response = await self._routes.at_any(lambda each: _DESCRIBE_CONFIGS.call(each, fields))
        else:
            response = await self._routes.at_broker(
                node_id, lambda each: _DESCRIBE_CONFIGS.call(each, fields)
            )
        found: dict[str, Sequence[ConfigEntry]] = {}
        for result in response.results:
            if skips_refused and result.error_code:
                continue
            check_error(result.error_code, result.error_message)
            entries = sorted(result.configs, key=lambda each: str(each.name))
            found[result.resource_name] = [_entry(each) for each in entries]
        return found

    async def own(self, kind: ConfigResourceType, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return the settings that are set on topics or groups themselves, without secrets.

        Names that do not exist, or that the user may not describe, are left out.
        """
        question = _OWN_SETTINGS[kind]
        found: dict[str, dict[str, str]] = {}
        for first in range(0, len(names), NAMES_PER_QUESTION):
            arguments: QuestionArguments = {"names": list(names[first : first + NAMES_PER_QUESTION])}
            found |= await self._routes.at_any(partial(ask_broker, question=question, arguments=arguments))
        return found

    async def alter(
        self, kind: ConfigResourceType, name: str, changes: Changes, *, may_repeat: bool = False
    ) -> None:
        """Make all changes of one resource, or none. An empty name stands for all brokers."""
        await self.alter_many(kind, {name: changes}, may_repeat=may_repeat)

    async def check(self, kind: ConfigResourceType, name: str, changes: Changes) -> None:
        """Validate changes of one resource without making them. Raises the error that the cluster would return."""
        await self.alter_many(kind, {name: changes}, may_repeat=True, validate_only=True)

    async def alter_many(
        self,
        kind: ConfigResourceType,
        changes: Mapping[str, Changes],
        *,
        may_repeat: bool = False,
        validate_only: bool = False,
    ) -> None:
        """Make changes of several resources. Raises the first refusal; changes of other resources may have
        been made.

        The request is sent once, and OutcomeUnknown is raised if its response is lost. With `may_repeat` the
        request is sent to another broker instead, because setting the same values twice does no harm.
        """
        resources = [
            {"resource_type": kind, "resource_name": name, "configs": _operations(of_resource)}
            for name, of_resource in changes.items()
        ]
        fields = {"resources": resources, "validate_only": validate_only}
        names = [name for name in changes if name and kind is ConfigResourceType.BROKER]
        node_id = await self._broker(names[0]) if names else None

        async def request(connection: BrokerConnection) -> Any:
            return await _INCREMENTAL_ALTER_CONFIGS.call(connection, fields)

        is_any = may_repeat and node_id is None
        response = await (self._routes.at_any(request) if is_any else self._routes.once(request, node_id))
        for result in response.responses:
            check_error(result.error_code, result.error_message)

    async def _broker(self, name: str) -> BrokerId:
        if not self._routes.brokers:
            await self._routes.read_brokers()
        node_id = BrokerId(int(name)) if name.isascii() and name.isdecimal() else None
        if node_id is None or node_id not in self._routes.brokers:
            raise BrokerError(ErrorCode.broker_id_not_registered, f"there is no broker {name[:20]!r}")
        return node_id


def _operations(changes: Changes) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "config_operation": ConfigOperation.DELETE if value is None else ConfigOperation.SET,
            "value": value,
        }
        for name, value in changes.items()
    ]


def _entry(config: Any) -> ConfigEntry:
    return ConfigEntry(
        config.name,
        None if config.is_sensitive else config.value,
        config.config_source,
        config.read_only,
        config.is_sensitive,
        config.documentation or "",
    )
