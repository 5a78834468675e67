"""Partitions: conversion between our type and confluent-kafka's, and the wait for a first fetch."""

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
    """Wait until librdkafka has fetched from a partition. A paused partition never does, so the wait has a limit."""
    deadline = time.monotonic() + SETTLE_PATIENCE_S
    while time.monotonic() < deadline:
        _, end = consumer.get_watermark_offsets(partition, cached=True)
        if end >= 0:
            return
        time.sleep(SETTLE_STEP_S)
