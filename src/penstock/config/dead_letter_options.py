"""Options for dead letters of share groups, set on groups, topics and brokers, with Kafka's names (KIP-1191)."""

from __future__ import annotations

import re

from penstock.config.group_options import GROUP_SETTINGS
from penstock.config.options import Option, OptionGroup
from penstock.config.topic_declarations import own
from penstock.config.types import Boolean, Parsed

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PREFIX = re.compile(r"[a-zA-Z0-9._-]{0,200}")


def parse_dead_letter_topic(text: str) -> str:
    if text and (_TOPIC_NAME.fullmatch(text) is None or text.startswith("__")):
        raise ValueError(text)
    return text


def _parse_prefix(text: str) -> str:
    if _PREFIX.fullmatch(text) is None:
        raise ValueError(text)
    return text


DEAD_LETTERS = OptionGroup("Dead letters")
DEAD_LETTER_TOPIC_PREFIX: Option[str] = DEAD_LETTERS.option(
    "errors.deadletterqueue.topic.name.prefix",
    Parsed(_parse_prefix, "a prefix of topic names, or nothing"),
    "",
    "Prefix of topics that may be the dead-letter topic of a share group. Empty: any name is allowed. "
    "Kafka's default is `dlq.`.",
    dynamic=True,
)
DEAD_LETTER_AUTO_CREATE: Option[bool] = DEAD_LETTERS.option(
    "errors.deadletterqueue.auto.create.topics.enable",
    Boolean(),
    False,
    "Whether the dead-letter topic of a share group is created when its first dead letter is written, with as many "
    "partitions as the topic of the record. `penstock queue create` creates it in any case.",
    dynamic=True,
)
DEAD_LETTER_GROUP_ENABLE: Option[bool] = own(
    "errors.deadletterqueue.group.enable",
    Boolean(),
    True,
    "Whether share groups may use the topic for their dead letters (KIP-1191). "
    "With `false` groups cannot name the topic, and dead letters of groups that already use it wait until it is "
    "`true` again.",
)
DEAD_LETTER_TOPIC_NAME: Option[str] = GROUP_SETTINGS.option(
    "errors.deadletterqueue.topic.name",
    Parsed(parse_dead_letter_topic, "the name of a topic that is not internal, or nothing"),
    "",
    "Topic for records that members of a share group reject, or that exhaust their deliveries (KIP-1191). Without it "
    "such records are archived and not kept elsewhere.",
)
DEAD_LETTER_COPY_RECORD_ENABLE: Option[bool] = GROUP_SETTINGS.option(
    "errors.deadletterqueue.copy.record.enable",
    Boolean(),
    True,
    "Whether dead letters have the key, value and headers of the record. With `false` "
    "they have only headers with its topic, partition, offset and the reason.",
)
