"""What a producer can be told, and the librdkafka settings that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from penstock.client.bootstrap import CONNECT_TIMEOUT_S, client_settings
from penstock.client.delivery import parse_delivery, producer_settings
from penstock.client.profile import producer_profile
from penstock.client.serializers import Format, Serializer

DELIVERY_TIMEOUT_S = 120.0


class ProducerOptions(TypedDict, total=False):
    key_serializer: Format | Serializer
    value_serializer: Format | Serializer
    delivery: Literal["at-most-once", "at-least-once", "exactly-once"]
    """At least once unless told otherwise."""
    profile: Literal["throughput", "latency"]
    linger_ms: float
    """How long a batch waits for more messages."""
    batch_bytes: int
    """How large a batch may get."""
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    delivery_timeout_s: float
    """After this long a message counts as not delivered."""
    connect_timeout_s: float
    """How long to wait for a broker at the start; 0 does not look."""
    config: Mapping[str, Any]
    """Settings by librdkafka's names; they win over all others."""


_NAMES = {"linger_ms": "linger.ms", "batch_bytes": "batch.size", "compression": "compression.type"}


def producer_config(bootstrap: str | None, options: ProducerOptions) -> dict[str, Any]:
    delivery = parse_delivery(options.get("delivery", "at-least-once"))
    timeout_s = options.get("delivery_timeout_s", DELIVERY_TIMEOUT_S)
    return {
        **producer_settings(delivery),
        **producer_profile(options.get("profile")),
        # The partitioner of the Java client: a key goes to the same partition whoever sends it.
        "partitioner": "murmur2_random",
        "delivery.timeout.ms": round(timeout_s * 1000),
        **{name: value for option, name in _NAMES.items() if (value := options.get(option)) is not None},
        **client_settings(bootstrap, options.get("connect_timeout_s", CONNECT_TIMEOUT_S)),
        **options.get("config", {}),
    }
