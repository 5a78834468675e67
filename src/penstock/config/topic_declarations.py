"""Declaration of topic options, with or without a broker option for the default."""

from __future__ import annotations

from typing import TypeVar

from penstock.config.options import Option, OptionGroup
from penstock.config.types import ValueType

T = TypeVar("T")

TOPICS = OptionGroup("Topic settings")
TOPIC_DEFAULTS = OptionGroup("Defaults for topics")


def topic(name: str, type: ValueType[T], default: T, doc: str, *, broker: str) -> Option[T]:
    """Declare a topic option, and the broker option `broker` that holds its default."""
    synonym = TOPIC_DEFAULTS.option(
        broker,
        type,
        default,
        f"Default of `{name}` for topics that do not set it.",
        dynamic=True,
    )
    option = Option(name, type, default, doc, dynamic=True, synonym=synonym)
    TOPICS.options.append(option)
    return option


def own(name: str, type: ValueType[T], default: T, doc: str) -> Option[T]:
    """Declare a topic option without a broker option for its default."""
    option = Option(name, type, default, doc, dynamic=True)
    TOPICS.options.append(option)
    return option
