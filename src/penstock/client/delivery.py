"""The delivery guarantee of producers and consumers, and the librdkafka settings for it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from penstock.client.errors import InvalidSetting


class Delivery(StrEnum):
    AT_MOST_ONCE = "at-most-once"
    """Messages are never duplicated: the producer does not retry, and the consumer commits a message before it returns
    it to the caller.
    """

    AT_LEAST_ONCE = "at-least-once"
    """Messages are never lost: the producer retries until a message is stored, and the consumer commits after
    processing.
    """

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
    """Return the consumer settings. With at-least-once delivery, librdkafka commits stored offsets in the background;
    with at-most-once, the consumer commits; with exactly-once, the producer's transaction commits.
    """
    return {
        "enable.auto.commit": delivery is Delivery.AT_LEAST_ONCE,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
    }
