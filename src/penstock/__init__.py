"""Penstock: a Kafka-compatible event log and message queue."""

__version__ = "0.1.0"
