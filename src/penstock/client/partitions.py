"""Partitions: conversion between `TopicPartition` and confluent-kafka's type, and the wait for the first fetch."""

from __future__ import annotations

import time
from collections.abc import Iterable

import confluent_kafka as kafka

from penstock.model import TopicPartition

SETTLE_PATIENCE_S = 2.0
SETTLE_STEP_S = 0.005


def named(partitions: Iterable[kafka.TopicPartition]) -> list[TopicPartition]:
    return [TopicPartition(each.topic, each.partition) for each in partitions]


def unnamed(partitions: Iterable[TopicPartition]) -> list[kafka.TopicPartition]:
    return [kafka.TopicPartition(each.topic, each.partition) for each in partitions]


def wait_for_fetch(consumer: kafka.Consumer, partition: kafka.TopicPartition) -> None:
    """Wait until librdkafka has fetched from a partition, up to a limit: a paused partition is never fetched."""
    deadline = time.monotonic() + SETTLE_PATIENCE_S
    while time.monotonic() < deadline:
        _, end = consumer.get_watermark_offsets(partition, cached=True)
        if end >= 0:
            return
        time.sleep(SETTLE_STEP_S)
