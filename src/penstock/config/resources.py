"""Kafka's codes for resources with configs and for config operations."""

from __future__ import annotations

from enum import IntEnum


class ConfigResourceType(IntEnum):
    """Kafka's ConfigResource.Type, as far as it is supported."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    """Described with Kafka's defaults. Subscriptions to client metrics are not supported."""
    GROUP = 32


class ConfigOperation(IntEnum):
    """Kafka's AlterConfigOp codes."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3
