"""The delivery setting: what may happen to a message after a failure, and the librdkafka settings for it.

Producers and consumers share it, so one word means the same on both sides.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from penstock.client.errors import InvalidSetting


class Delivery(StrEnum):
    AT_MOST_ONCE = "at-most-once"
    """Messages are never duplicated: the producer does not retry, the consumer commits before it hands over."""

    AT_LEAST_ONCE = "at-least-once"
    """Messages are never lost: the producer retries until stored, the consumer commits after processing."""

    EXACTLY_ONCE = "exactly-once"
    """Messages are processed in transactions: input offsets and output are committed together, once."""


def parse_delivery(chosen: str) -> Delivery:
    try:
        return Delivery(chosen)
    except ValueError:
        raise InvalidSetting(
            f"{chosen!r} is not a delivery setting; choose one of {', '.join(Delivery)}"
        ) from None


def producer_settings(delivery: Delivery) -> dict[str, Any]:
    if delivery is Delivery.AT_MOST_ONCE:
        return {"acks": 0, "enable.idempotence": False, "message.send.max.retries": 0}
    return {"acks": "all", "enable.idempotence": True}


def consumer_settings(delivery: Delivery) -> dict[str, Any]:
    """Return the consumer settings. At least once, librdkafka commits stored offsets in the background; at
    most once, the consumer commits; exactly once, the producer's transaction commits.
    """
    return {
        "enable.auto.commit": delivery is Delivery.AT_LEAST_ONCE,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
    }
