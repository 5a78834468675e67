"""Response of DeleteRecords version 2 with a tagged field of Penstock: the number of pending delayed messages
that were removed.

Kafka's clients skip unknown tagged fields. The annotations are evaluated at run time, as those of kio are.
"""

from dataclasses import dataclass, field
from typing import Final

from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kio.static.primitive import i64

REMOVED_PENDING_TAG: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResult(DeleteRecordsPartitionResult):
    removed_pending: i64 = field(default=i64(0), metadata={"kafka_type": "int64", "tag": REMOVED_PENDING_TAG})
    """Number of delayed messages that were deleted before they were delivered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult(DeleteRecordsTopicResult):
    partitions: tuple[PartitionResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsResult(DeleteRecordsResponse):
    topics: tuple[TopicResult, ...]
