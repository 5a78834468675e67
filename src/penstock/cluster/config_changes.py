"""Effect of AlterConfigs and IncrementalAlterConfigs on the configs of a topic, broker or group. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.config import (
    BROKER_OPTIONS,
    GROUP_OPTIONS,
    TOPIC_OPTIONS,
    BrokerConfig,
    GroupConfig,
    Kind,
    Option,
    TopicConfig,
)
from penstock.config.resources import ConfigOperation, ConfigResourceType
from penstock.errors import BrokerError, ConfigError, ErrorCode


@dataclass(frozen=True, slots=True)
class ConfigAlteration:
    name: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """Changed configs of one topic, group or broker (its id as text). An empty broker name means all brokers."""

    kind: ConfigResourceType
    name: str
    alterations: Sequence[ConfigAlteration]
    replaces: bool = False
    """True for AlterConfigs, which returns configs that the request does not name to their default."""


def altered_topic_configs(
    current: Mapping[str, str], change: ConfigChange, broker: BrokerConfig
) -> dict[str, str]:
    try:
        in_force = TopicConfig(broker, current)
        altered = _alter(current, change, TOPIC_OPTIONS, lambda option: option.format(in_force[option]))
        TopicConfig(broker, altered)
    except ConfigError as error:
        raise BrokerError(ErrorCode.invalid_config, str(error)) from error
    return altered


def altered_broker_configs(
    current: Mapping[str, str], change: ConfigChange, broker: BrokerConfig
) -> dict[str, str]:
    altered = _alter(current, change, BROKER_OPTIONS, lambda option: option.format(broker[option]))
    try:
        broker.with_overrides(altered)
    except ConfigError as error:
        # Kafka uses INVALID_REQUEST for brokers and INVALID_CONFIG for topics.
        raise BrokerError(ErrorCode.invalid_request, str(error)) from error
    return altered


def altered_group_configs(
    current: Mapping[str, str], change: ConfigChange, broker: BrokerConfig
) -> dict[str, str]:
    try:
        in_force = GroupConfig(broker, current)
        altered = _alter(current, change, GROUP_OPTIONS, lambda option: option.format(in_force[option]))
        GroupConfig(broker, altered).check()
    except ConfigError as error:
        raise BrokerError(ErrorCode.invalid_config, str(error)) from error
    return altered


def _alter(
    current: Mapping[str, str],
    change: ConfigChange,
    options: Mapping[str, Option[Any]],
    in_force: Callable[[Option[Any]], str],
) -> dict[str, str]:
    names = [alteration.name for alteration in change.alterations]
    if len(set(names)) < len(names):
        raise BrokerError(ErrorCode.invalid_request, "a config is named twice in one request")
    altered = {} if change.replaces else dict(current)
    for alteration in change.alterations:
        if alteration.operation is ConfigOperation.DELETE:
            altered.pop(alteration.name, None)
            continue
        if alteration.value is None:
            raise BrokerError(ErrorCode.invalid_request, f"{alteration.name[:80]} has no value")
        if alteration.operation is ConfigOperation.SET:
            altered[alteration.name] = alteration.value
            continue
        option = options.get(alteration.name)
        if option is None or option.kind is not Kind.LIST:
            raise BrokerError(
                ErrorCode.invalid_config,
                f"{alteration.name[:80]} is not a list; {alteration.operation.name} does not apply",
            )
        before = altered[option.name] if option.name in altered else in_force(option)
        altered[option.name] = _change_list(before, alteration.operation, alteration.value)
    return altered


def _change_list(before: str, operation: ConfigOperation, items: str) -> str:
    present = [item.strip() for item in before.split(",") if item.strip()]
    named = [item.strip() for item in items.split(",") if item.strip()]
    if operation is ConfigOperation.APPEND:
        return ",".join(dict.fromkeys(present + named))
    return ",".join(item for item in present if item not in named)
