"""Names of the partitions' directories: `logs/<topic, at most 200 characters>-<partition>-<topic id>`.

The topic id, in Kafka's base64 form, identifies a directory: a topic that was deleted and created again gets another
directory, and so do two topics whose names differ only in case. The topic name is only for people.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID

from penstock.model import TopicId, TopicPartition

LOGS = "logs"
DELETED_SUFFIX = ".deleted"
_MAX_TOPIC_CHARACTERS = 200
_ID_CHARACTERS = 22


def log_directory(topic_partition: TopicPartition, topic_id: TopicId) -> str:
    encoded_id = urlsafe_b64encode(topic_id.bytes)[:_ID_CHARACTERS].decode()
    topic = topic_partition.topic[:_MAX_TOPIC_CHARACTERS]
    return f"{LOGS}/{topic}-{topic_partition.partition}-{encoded_id}"


def parse_log_directory(name: str) -> tuple[TopicPartition, TopicId] | None:
    """Parse the name of a directory; None if it is not a log's. A longer topic name is returned shortened."""
    rest, encoded_id = name[: -_ID_CHARACTERS - 1], name[-_ID_CHARACTERS:]
    topic, _, partition = rest.rpartition("-")
    if (
        not topic
        or not (partition.isascii() and partition.isdigit())
        or name[len(rest) : len(rest) + 1] != "-"
    ):
        return None
    try:
        topic_id = TopicId(UUID(bytes=urlsafe_b64decode(encoded_id + "==")))
    except ValueError:
        return None
    return TopicPartition(topic, int(partition)), topic_id
