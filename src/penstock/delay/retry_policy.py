"""Retry policy of a consumer group, which is stored in the configs of its retry topic. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.config.delay_options import DELIVERY_DELAY
from penstock.config.retry_options import (
    DEFAULT_RETRY_BACKOFF,
    RETRY_BACKOFF_MS,
    RETRY_DEAD_LETTER_TOPIC,
    RETRY_GROUP,
    RETRY_MAX_ATTEMPTS,
)
from penstock.delay.retry_names import dead_letter_topic, retry_topic

OPTIONS: Final = (
    RETRY_GROUP.name,
    RETRY_MAX_ATTEMPTS.name,
    RETRY_BACKOFF_MS.name,
    RETRY_DEAD_LETTER_TOPIC.name,
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    group: str
    max_attempts: int = RETRY_MAX_ATTEMPTS.default
    """Maximum number of deliveries of a message, including the first one."""
    back_off: str = str(DEFAULT_RETRY_BACKOFF)
    dead_letter: str = ""
    """Topic for messages that have failed `max_attempts` times."""

    @property
    def topic(self) -> str:
        return retry_topic(self.group)

    @property
    def configs(self) -> dict[str, str]:
        """Topic configs that contain the policy."""
        return {
            RETRY_GROUP.name: self.group,
            RETRY_MAX_ATTEMPTS.name: str(self.max_attempts),
            RETRY_BACKOFF_MS.name: self.back_off,
            RETRY_DEAD_LETTER_TOPIC.name: self.dead_letter,
        }

    @property
    def topic_configs(self) -> dict[str, str]:
        """All topic configs of a new retry topic."""
        return {DELIVERY_DELAY.name: "true", **self.configs}


def default_policy(group: str) -> RetryPolicy:
    return RetryPolicy(group, dead_letter=dead_letter_topic(group))


def read_policy(group: str, configs: Mapping[str, str | None]) -> RetryPolicy | None:
    """Read the policy from the configs of a group's retry topic; None if they contain none."""
    if configs.get(RETRY_GROUP.name) != group:
        return None
    return RetryPolicy(
        group,
        int(configs.get(RETRY_MAX_ATTEMPTS.name) or RETRY_MAX_ATTEMPTS.default),
        configs.get(RETRY_BACKOFF_MS.name) or "",
        configs.get(RETRY_DEAD_LETTER_TOPIC.name) or "",
    )
