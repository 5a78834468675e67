"""Retention of a queue's own topic, by acknowledgement or by time, and the policy for its maximum length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.config import RETENTION_ACKNOWLEDGED, RETENTION_MS, MaxLengthPolicy
from penstock.config.retry_backoff import delay_text, parse_delay_ms
from penstock.errors import BrokerError, ErrorCode

ACKNOWLEDGED: Final = "acknowledged"
RETAIN_CONFIGS: Final = (RETENTION_ACKNOWLEDGED.name, RETENTION_MS.name)


def retain_configs(retain: str) -> dict[str, str | None]:
    """Topic configs for `acknowledged`, or for a time such as `2w`. Raises ValueError for other texts."""
    if not retain:
        return {}
    if retain == ACKNOWLEDGED:
        return {RETENTION_ACKNOWLEDGED.name: "true"}
    return {RETENTION_ACKNOWLEDGED.name: None, RETENTION_MS.name: str(parse_delay_ms(retain))}


def retain_text(values: Mapping[str, str | None]) -> str:
    """Retention of a topic with these configs, in the format of `retain_configs`; `forever` without a limit."""
    if values.get(RETENTION_ACKNOWLEDGED.name) == "true":
        return ACKNOWLEDGED
    kept_ms = int(values.get(RETENTION_MS.name) or -1)
    return "forever" if kept_ms < 0 else delay_text(kept_ms)


def not_its_own(queue: str, topic: str) -> BrokerError:
    """Error of a request to change a topic that a queue only reads."""
    return BrokerError(
        ErrorCode.invalid_config,
        f"{topic} was not created by queue {queue}; `penstock topic alter {topic} --set "
        f"{RETENTION_ACKNOWLEDGED.name}=true` changes what the topic keeps",
    )


def check_policy(policy: str | None, dead_letter: str | None) -> None:
    """Refuse a queue whose oldest messages would become dead letters if it has no dead-letter topic."""
    if policy == MaxLengthPolicy.DEAD_LETTER and not dead_letter:
        raise BrokerError(
            ErrorCode.invalid_config,
            "share.max.length.policy=dead-letter needs a dead-letter topic; name one, or use the policy refuse",
        )
