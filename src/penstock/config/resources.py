"""Kafka's codes for resources with configs and for config operations."""

from __future__ import annotations

from enum import IntEnum


class ConfigResourceType(IntEnum):
    """Kafka's ConfigResource.Type, limited to the supported types."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    """Resource type that can be described, with Kafka's defaults. Subscriptions to client metrics are not supported."""
    GROUP = 32


class ConfigOperation(IntEnum):
    """Kafka's AlterConfigOp codes."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3
