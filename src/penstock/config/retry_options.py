"""Options of retry topics, which store the retry policy of a consumer group."""

from __future__ import annotations

from typing import Final

from penstock.config.dead_letter_options import parse_dead_letter_topic
from penstock.config.options import Option
from penstock.config.retry_backoff import EXPECTED, RetryBackoff, parse_retry_backoff
from penstock.config.topic_declarations import own
from penstock.config.types import Integer, MaybeText, Parsed

DEFAULT_RETRY_BACKOFF: Final = parse_retry_backoff("exponential:1s:10m")

RETRY_GROUP: Option[str] = own(
    "retry.group",
    MaybeText(),
    "",
    "Consumer group whose failed messages the topic holds (docs/retries.md). The leader counts the attempts of records "
    "that are produced to such a topic, and picks their delay. The topic needs `delivery.delay=true`. Empty: no retry "
    "topic.",
)
RETRY_MAX_ATTEMPTS: Option[int] = own(
    "retry.max.attempts",
    Integer(2, 100),
    5,
    "Maximum number of deliveries of a message, the first one included, in a topic with `retry.group`. A record that "
    "has failed this often is refused with POLICY_VIOLATION: it belongs to the dead-letter topic.",
)
RETRY_BACKOFF_MS: Option[RetryBackoff] = own(
    "retry.backoff.ms",
    Parsed(parse_retry_backoff, EXPECTED),
    DEFAULT_RETRY_BACKOFF,
    "Delay of records in a topic with `retry.group`: a list of delays, one for each attempt, of which the last one "
    "repeats, or `exponential:FIRST:MAXIMUM`. Empty: no delay.",
)
RETRY_DEAD_LETTER_TOPIC: Option[str] = own(
    "retry.dead.letter.topic",
    Parsed(parse_dead_letter_topic, "the name of a topic that is not internal, or nothing"),
    "",
    "Topic for messages of a group with a retry policy that have failed `retry.max.attempts` times.",
)
