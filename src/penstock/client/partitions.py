"""Conversion between our partition type and confluent-kafka's."""

from __future__ import annotations

from collections.abc import Iterable

import confluent_kafka as kafka

from penstock.model import TopicPartition


def named(partitions: Iterable[kafka.TopicPartition]) -> list[TopicPartition]:
    return [TopicPartition(each.topic, each.partition) for each in partitions]


def unnamed(partitions: Iterable[TopicPartition]) -> list[kafka.TopicPartition]:
    return [kafka.TopicPartition(each.topic, each.partition) for each in partitions]
