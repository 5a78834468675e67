"""Options of a producer, and their translation to librdkafka settings."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from penstock.client.bootstrap import CONNECT_TIMEOUT_S, client_settings
from penstock.client.delivery import Delivery, parse_delivery, producer_settings
from penstock.client.errors import InvalidSetting
from penstock.client.option_names import check_names
from penstock.client.profile import producer_profile
from penstock.client.serializers import Format, Serializer

DELIVERY_TIMEOUT_S = 120.0
TRANSACTION_TIMEOUT_S = 60.0
IDLE_CONNECTION_MS = 5_000
"""Idle time after which a transactional producer closes a connection.

librdkafka can wait forever for a group coordinator that it has dropped from its broker list, until any
connection opens or closes (its issues 5511 and 5456). Closing idle connections makes it look again before the
transaction times out.
"""


class ProducerOptions(TypedDict, total=False):
    key_serializer: Format | Serializer
    value_serializer: Format | Serializer
    delivery: Literal["at-most-once", "at-least-once", "exactly-once"]
    """Delivery guarantee; at least once by default."""
    profile: Literal["throughput", "latency"]
    linger_ms: float
    """How long a batch waits for more messages, in milliseconds."""
    batch_bytes: int
    """Upper bound of the size of a batch."""
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    transactional_id: str
    """Transactional id, for exactly-once delivery; a random one by default. A producer that starts with the same id
    fences its predecessor.
    """
    transaction_timeout_s: float
    """Time after which the broker aborts an open transaction, for exactly-once delivery."""
    delivery_timeout_s: float
    """Time after `send` when a message counts as not delivered."""
    connect_timeout_s: float
    """How long to wait for a broker when the client is created; 0 skips the check."""
    config: Mapping[str, Any]
    """Settings by librdkafka's names; they override all other options."""


_NAMES = {"linger_ms": "linger.ms", "batch_bytes": "batch.size", "compression": "compression.type"}


def check_producer_names(options: Mapping[str, Any]) -> None:
    """Raise UnknownOption for an option that producers do not have."""
    check_names(options, ("bootstrap", *ProducerOptions.__annotations__))


def producer_config(bootstrap: str | None, options: ProducerOptions) -> dict[str, Any]:
    check_producer_names(options)
    delivery = parse_delivery(options.get("delivery", "at-least-once"))
    timeout_s = options.get("delivery_timeout_s", DELIVERY_TIMEOUT_S)
    if delivery is Delivery.EXACTLY_ONCE:
        timeout_s = min(timeout_s, transaction_timeout_s(options))
    return {
        **producer_settings(delivery),
        **_transaction_settings(delivery, options),
        **producer_profile(options.get("profile")),
        # The partitioner of the Java client: all clients map a key to the same partition.
        "partitioner": "murmur2_random",
        "delivery.timeout.ms": round(timeout_s * 1000),
        **{name: value for option, name in _NAMES.items() if (value := options.get(option)) is not None},
        **client_settings(
            bootstrap, options.get("connect_timeout_s", CONNECT_TIMEOUT_S), options.get("config")
        ),
        **options.get("config", {}),
    }


def transaction_timeout_s(options: ProducerOptions) -> float:
    return options.get("transaction_timeout_s", TRANSACTION_TIMEOUT_S)


def _transaction_settings(delivery: Delivery, options: ProducerOptions) -> dict[str, Any]:
    if delivery is not Delivery.EXACTLY_ONCE:
        for name in ("transactional_id", "transaction_timeout_s"):
            if name in options:
                raise InvalidSetting(f"{name} needs delivery='exactly-once'")
        return {}
    return {
        "transactional.id": options.get("transactional_id") or f"penstock-{uuid.uuid4()}",
        "transaction.timeout.ms": round(transaction_timeout_s(options) * 1000),
        "connections.max.idle.ms": IDLE_CONNECTION_MS,
    }
