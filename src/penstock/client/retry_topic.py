"""The retry topic of a consumer group, which the consumer reads in addition to its own topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from penstock.client.delay import DelayTopics
from penstock.client.errors import ClientError, InvalidSetting, translated

REQUEST_S = 30.0


def find_retry_topic(consumer: Consumer, group: str | None, config: Mapping[str, Any]) -> str | None:
    """Return the retry topic of a group; None if it does not exist. A topic of this name that does not support delayed
    messages is not a retry topic.
    """
    if not group:
        return None
    # Importing a client must not import parts of the broker.
    from penstock.delay.retry_names import retry_topic

    name = retry_topic(group)
    with translated(f"cannot look up {name}"):
        if not consumer.list_topics(name, timeout=REQUEST_S).topics[name].partitions:
            return None
    try:
        DelayTopics(config).require(name)
    except InvalidSetting:
        return None
    except ClientError as error:
        if error.code not in ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"):
            raise
        return None
    return name


def from_start(consumer: Consumer, topic: str, partitions: list[TopicPartition]) -> None:
    """Make partitions of the retry topic without a committed offset start at their first offset, regardless of
    `start`.
    """
    own = [TopicPartition(each.topic, each.partition) for each in partitions if each.topic == topic]
    if not own:
        return
    with translated(f"cannot look up the offsets of {topic}"):
        committed = {each.partition: each.offset for each in consumer.committed(own, timeout=REQUEST_S)}
    for each in partitions:
        if each.topic == topic and committed[each.partition] < 0:
            each.offset = OFFSET_BEGINNING
