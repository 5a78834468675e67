"""Delayed delivery of messages: the header with the delay, and the topics that support it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from penstock.client.errors import InvalidSetting, from_kafka

DELIVERY_DELAY: Final = "delivery.delay"
MAX_DELAY: Final = "delivery.delay.max.ms"
DELAY_MS: Final = "penstock-delay-ms"
DELIVER_AT: Final = "penstock-deliver-at"
CANCEL: Final = "penstock-cancel"
_PATIENCE_S = 30.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def delay_header(delay_s: float | None, deliver_at: datetime | int | None) -> tuple[str, bytes] | None:
    """Return the header for a delay; None if no delay is given. Raises InvalidSetting if both are given or one is not
    valid.
    """
    if delay_s is None and deliver_at is None:
        return None
    if delay_s is not None and deliver_at is not None:
        raise InvalidSetting("give delay_s or deliver_at, not both")
    if delay_s is not None:
        if not (_is_number(delay_s) and math.isfinite(delay_s) and delay_s >= 0):
            raise InvalidSetting(f"delay_s={delay_s!r}: give a number of seconds, 0 or more")
        return DELAY_MS, b"%d" % math.ceil(delay_s * 1000)
    if isinstance(deliver_at, datetime):
        if deliver_at.tzinfo is None:
            raise InvalidSetting("deliver_at has no time zone; give datetime(..., tzinfo=UTC)")
        deliver_at = -((_EPOCH - deliver_at) // timedelta(milliseconds=1))
    elif not isinstance(deliver_at, int) or isinstance(deliver_at, bool):
        raise InvalidSetting(
            f"deliver_at={deliver_at!r}: give a datetime with a time zone, or epoch milliseconds"
        )
    return DELIVER_AT, b"%d" % max(0, deliver_at)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def refuse_second_delay(names: Iterable[str]) -> None:
    """Raise InvalidSetting if the headers of a message that is sent with a delay already contain a delay."""
    for name in names:
        if name in (DELAY_MS, DELIVER_AT, CANCEL):
            raise InvalidSetting(f"the header {name} excludes delay_s and deliver_at; give one of them")


class DelayTopics:
    """Cache of topics that are known to support delayed messages. Other topics would deliver a delayed message
    at once.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = {
            name: value
            for name, value in config.items()
            if name.split(".")[0] in ("bootstrap", "security", "sasl", "ssl", "client", "log_level")
        }
        self._max_ms: dict[str, int] = {}
        """Longest allowed delay in milliseconds, by topic, for topics that were looked up."""

    def check(self, topic: str, header: tuple[str, bytes]) -> None:
        """Check that a topic allows the delay in `header`; the first check of a topic asks a broker. Raises
        InvalidSetting if the topic does not support delayed messages, or not a delay of this length.
        """
        name, value = header
        delay_ms = int(value) if name == DELAY_MS else int(value) - time.time_ns() // 1_000_000
        self.require(topic)
        if delay_ms > self._max_ms[topic]:
            del self._max_ms[topic]  # the setting may have changed since the lookup
            self.require(topic)
        if delay_ms > self._max_ms[topic]:
            raise InvalidSetting(
                f"the delay is longer than {MAX_DELAY} of {topic} ({self._max_ms[topic]} ms)"
            )

    def require(self, topic: str) -> None:
        """Check that a topic supports delayed messages; the first check of a topic asks a broker. Raises InvalidSetting
        if it does not.
        """
        if topic in self._max_ms:
            return
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        admin = AdminClient(self._config)  # referenced until the response has arrived
        asked = admin.describe_configs([resource], request_timeout=_PATIENCE_S)
        try:
            configs = asked[resource].result(_PATIENCE_S)
        except KafkaException as error:
            raise from_kafka(error, f"cannot look up the settings of {topic}") from None
        entry = configs.get(DELIVERY_DELAY)
        if entry is None or entry.value != "true":
            raise InvalidSetting(
                f"{topic} has no delayed messages: create a topic with {DELIVERY_DELAY}=true"
            )
        self._max_ms[topic] = int(configs[MAX_DELAY].value)
