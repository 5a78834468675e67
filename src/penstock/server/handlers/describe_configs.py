"""DescribeConfigs: settings with their values, derived from the declarations of the options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.cluster.topics import check_topic_name
from penstock.config import BROKER_OPTIONS, GROUP_OPTIONS, TOPIC_OPTIONS, ConfigSource, GroupConfig, Kind
from penstock.config.resources import ConfigResourceType
from penstock.errors import BrokerError, ErrorCode
from penstock.server.context import BrokerContext
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.config_fields import DYNAMIC_DEFAULT_BROKER_CONFIG, config_fields, topic_config
from penstock.server.handlers.config_resources import check_resource
from penstock.server.security import Operation


def handle(request: Request, message: Any) -> Fields:
    seen: set[tuple[int, str]] = set()
    results = [_describe(request, message, resource, seen) for resource in message.resources]
    return {"throttle_time": NO_TIME, "results": results}


API = Api(32, 1, 4, handle)

_CLIENT_METRICS_DEFAULTS = (
    ("interval.ms", Kind.INT, "300000", "How often a client pushes its metrics."),
    ("match", Kind.LIST, "", "Which clients push metrics; empty: all."),
    ("metrics", Kind.LIST, "", "Prefixes of the metrics that are pushed; empty: none."),
)


def _describe(request: Request, message: Any, resource: Any, seen: set[tuple[int, str]]) -> Fields:
    fields = {
        "error_code": ErrorCode.none,
        "error_message": None,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": (),
    }
    try:
        # The response is much larger than the request, so a request may name each resource only once.
        if (resource.resource_type, resource.resource_name) in seen:
            raise BrokerError(ErrorCode.invalid_request, "the resource is in the request twice")
        seen.add((resource.resource_type, resource.resource_name))
        kind = check_resource(request, Operation.DESCRIBE_CONFIGS, resource)
        if kind is ConfigResourceType.CLIENT_METRICS:
            configs = _of_client_metrics(resource.resource_name)
        elif kind is ConfigResourceType.TOPIC:
            configs = _of_topic(request.context, resource.resource_name)
        elif kind is ConfigResourceType.GROUP:
            configs = _of_group(request.context, resource.resource_name)
        else:
            configs = _of_broker(request.context, resource.resource_name)
    except BrokerError as error:
        return fields | {"error_code": error.code, "error_message": str(error)}
    # Kafka takes both null and an empty list as all keys.
    keys = set(resource.configuration_keys or ())
    return fields | {
        "configs": [_trim(message, config) for config in configs if not keys or config["name"] in keys]
    }


def _trim(message: Any, config: Fields) -> Fields:
    trimmed = dict(config)
    if not message.include_synonyms:
        trimmed["synonyms"] = ()
    if not getattr(message, "include_documentation", False):
        trimmed["documentation"] = None
    return trimmed


def _of_topic(context: BrokerContext, name: str) -> Iterator[Fields]:
    check_topic_name(name)
    topic = context.image.topic(name)
    if topic is None:
        raise BrokerError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name}")
    config = topic_config(context, topic)
    return (config_fields(context, config, option, read_only=False) for option in TOPIC_OPTIONS.values())


def _of_group(context: BrokerContext, group_id: str) -> Iterator[Fields]:
    """Settings of a group, which may not exist yet."""
    if not group_id:
        raise BrokerError(ErrorCode.invalid_request, "the group id must not be empty")
    own = context.image.group_configs.get(group_id)
    config = GroupConfig(context.config, None if own is None else own.values)
    return (config_fields(context, config, option, read_only=False) for option in GROUP_OPTIONS.values())


def _of_client_metrics(name: str) -> Iterator[Fields]:
    """Default settings of a client metrics subscription (KIP-714). Subscriptions cannot be created, so these are the
    only values.
    """
    if not name:
        raise BrokerError(ErrorCode.invalid_request, "the name of a subscription must not be empty")
    for setting, kind, value, documentation in _CLIENT_METRICS_DEFAULTS:
        yield {
            "name": setting,
            "value": value,
            "read_only": False,
            "config_source": int(ConfigSource.DEFAULT_CONFIG),
            "is_sensitive": False,
            "synonyms": (),
            "config_type": int(kind),
            "documentation": documentation,
        }


def _of_broker(context: BrokerContext, name: str) -> Iterator[Fields]:
    if not name:
        return _of_all_brokers(context)
    if name != str(context.node_id):
        raise BrokerError(
            ErrorCode.invalid_request,
            f"this is broker {context.node_id}: give its own id, or an empty name for the settings of all brokers",
        )
    return (
        config_fields(context, context.config, option, read_only=not option.dynamic)
        for option in BROKER_OPTIONS.values()
    )


def _of_all_brokers(context: BrokerContext) -> Iterator[Fields]:
    """Settings that were changed at run time for all brokers."""
    for name, value in context.image.configs_of(None).values.items():
        option = BROKER_OPTIONS[name]
        shown = None if option.sensitive else value
        yield {
            "name": name,
            "value": shown,
            "read_only": False,
            "config_source": DYNAMIC_DEFAULT_BROKER_CONFIG,
            "is_sensitive": option.sensitive,
            "synonyms": [{"name": name, "value": shown, "source": DYNAMIC_DEFAULT_BROKER_CONFIG}],
            "config_type": int(option.kind),
            "documentation": option.doc,
        }
