"""Kafka's codes for the resources that have settings and for the ways to alter a setting."""

from __future__ import annotations

from enum import IntEnum


class ConfigResourceType(IntEnum):
    """The types of Kafka's ConfigResource.Type that can be described here."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    """Described with Kafka's defaults; no subscription to client metrics can be made."""
    GROUP = 32


class ConfigOperation(IntEnum):
    """Kafka's AlterConfigOp, with its codes."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3
