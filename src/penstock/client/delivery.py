"""The delivery setting: what may happen to a message when something fails, and what it asks of librdkafka.

Shared by producers and consumers, so that one word means the same on both sides.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from penstock.client.errors import InvalidSetting


class Delivery(StrEnum):
    AT_MOST_ONCE = "at-most-once"
    """Never twice: not sent again, and committed before it is handed over."""

    AT_LEAST_ONCE = "at-least-once"
    """Never lost: sent until stored, and committed after it was worked on."""

    EXACTLY_ONCE = "exactly-once"
    """In transactions: what was read and what was written count together, and once."""


def parse_delivery(chosen: str) -> Delivery:
    try:
        return Delivery(chosen)
    except ValueError:
        raise InvalidSetting(f"{chosen!r} is no delivery; there are {', '.join(Delivery)}") from None


def producer_settings(delivery: Delivery) -> dict[str, Any]:
    if delivery is Delivery.AT_MOST_ONCE:
        return {"acks": 0, "enable.idempotence": False, "message.send.max.retries": 0}
    return {"acks": "all", "enable.idempotence": True}


def consumer_settings(delivery: Delivery) -> dict[str, Any]:
    """At least once, librdkafka commits in the background what has been marked as done; else we commit, or exactly
    once the producer's transaction does."""
    return {
        "enable.auto.commit": delivery is Delivery.AT_LEAST_ONCE,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
    }
