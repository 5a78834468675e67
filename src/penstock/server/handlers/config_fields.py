"""Fields of a setting in CreateTopics and DescribeConfigs: its value, and all sources that have a value for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.cluster.image import TopicImage
from penstock.config import BrokerConfig, ConfigSource, GroupConfig, Option, Synonym, TopicConfig
from penstock.server.context import BrokerContext
from penstock.server.dispatch import Fields

DYNAMIC_DEFAULT_BROKER_CONFIG = 3
"""Kafka's code for the source of settings that were changed at run time for all brokers."""


def topic_config(context: BrokerContext, topic: TopicImage) -> TopicConfig:
    return TopicConfig(context.config, topic.configs)


def config_fields(
    context: BrokerContext,
    config: BrokerConfig | TopicConfig | GroupConfig,
    option: Option[Any],
    *,
    read_only: bool,
) -> Fields:
    synonyms = [
        {"name": name, "value": None if option.sensitive else value, "source": source}
        for name, value, source in _places(context, config.synonyms(option))
    ]
    in_force = synonyms[0]
    return {
        "name": option.name,
        "value": in_force["value"],
        "read_only": read_only,
        "config_source": in_force["source"],
        "is_sensitive": option.sensitive,
        "synonyms": synonyms,
        "config_type": int(option.kind),
        "documentation": option.doc,
    }


def _places(context: BrokerContext, synonyms: Iterator[Synonym]) -> Iterator[tuple[str, str, int]]:
    """Names, values and source codes of a setting. Run-time settings of this broker and of all brokers are separate
    sources.
    """
    image = context.image
    for synonym in synonyms:
        if synonym.source is not ConfigSource.DYNAMIC_BROKER_CONFIG:
            yield synonym.name, synonym.value, int(synonym.source)
            continue
        own = image.configs_of(context.node_id).values.get(synonym.name)
        if own is not None:
            yield synonym.name, own, int(ConfigSource.DYNAMIC_BROKER_CONFIG)
        everyones = image.configs_of(None).values.get(synonym.name)
        if everyones is not None:
            yield synonym.name, everyones, DYNAMIC_DEFAULT_BROKER_CONFIG
