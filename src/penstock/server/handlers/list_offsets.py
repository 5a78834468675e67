"""ListOffsets: first and last offsets of a partition, and the first offset at or after a time.

No offset above the high watermark is returned; with read_committed, none above the last stable offset. Timestamps are
looked up in a thread pool, because that may wait for the disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from penstock.errors import BrokerError, ErrorCode, StorageError
from penstock.model import Offset
from penstock.replication.replica import Replica
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.security import Operation, ResourceType

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
FIRST_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
FIRST_VERSION_OF_OFFSET_NOT_AVAILABLE = 5
NONE = -1
READ_COMMITTED = 1

Search = Callable[[], Fields]
"""Lookup of a timestamp, which may wait for the disk."""


def handle(request: Request, message: Any) -> Fields | Awaitable[Fields]:
    request.session.is_consumer = True
    counts = Counter(
        (topic.name, asked.partition_index) for topic in message.topics for asked in topic.partitions
    )
    is_committed = getattr(message, "isolation_level", 0) == READ_COMMITTED
    topics: list[tuple[str, list[Fields | Search]]] = []
    for topic in message.topics:
        answers = [_answer(request, topic.name, asked, counts, is_committed) for asked in topic.partitions]
        topics.append((topic.name, answers))
    if any(callable(answer) for _, answers in topics for answer in answers):
        return request.context.threads.run("read", partial(_response, topics))
    return _response(topics)


API = Api(2, 1, 11, handle)


def _response(topics: list[tuple[str, list[Fields | Search]]]) -> Fields:
    return {
        "throttle_time": NO_TIME,
        "topics": [
            {"name": name, "partitions": [answer() if callable(answer) else answer for answer in answers]}
            for name, answers in topics
        ],
    }


def _answer(
    request: Request, topic: str, asked: Any, counts: Counter[tuple[str, int]], is_committed: bool
) -> Fields | Search:
    index, timestamp = asked.partition_index, asked.timestamp
    try:
        request.require(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        if counts[topic, index] > 1:
            raise BrokerError(ErrorCode.invalid_request, "the partition is in the request twice")
        if timestamp < 0 and request.version < FIRST_VERSION.get(timestamp, request.version + 1):
            raise BrokerError(ErrorCode.unsupported_version)
        replica = request.context.replicas.get(request.context.source_of(topic), index)
        replica.check_leader_epoch(getattr(asked, "current_leader_epoch", -1))
    except BrokerError as error:
        return _fields(index, code=error.code)
    log = replica.log
    below = log.last_stable_offset if is_committed else replica.log.high_watermark
    refusal = _refusal(request, replica)
    if timestamp == LATEST:
        if refusal is not ErrorCode.none:
            return _fields(index, code=refusal)
        return _fields(index, NONE, below, replica.partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _fields(index, NONE, log.log_start_offset, log.leader_epochs.epoch_at(log.log_start_offset))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _fields(index)
    return partial(_search, replica, index, timestamp, below, refusal)


def _refusal(request: Request, replica: Replica) -> ErrorCode:
    """Error while the high watermark of a new leader may be lower than the former leader's (KIP-207):
    OFFSET_NOT_AVAILABLE, or LEADER_NOT_AVAILABLE in older versions. NONE otherwise.
    """
    if replica.partition.is_caught_up:
        return ErrorCode.none
    has_code = request.version >= FIRST_VERSION_OF_OFFSET_NOT_AVAILABLE
    return ErrorCode.offset_not_available if has_code else ErrorCode.leader_not_available


def _search(replica: Replica, index: int, timestamp: int, below: Offset, none_found: ErrorCode) -> Fields:
    try:
        if timestamp == MAX_TIMESTAMP:
            found = replica.log.max_timestamp(below)
        else:
            found = replica.log.find_timestamp(timestamp, below)
    except StorageError:
        return _fields(index, code=ErrorCode.kafka_storage_error)
    if found is None:
        return _fields(index, code=none_found)
    return _fields(index, found.timestamp, found.offset, found.leader_epoch)


def _fields(
    index: int,
    timestamp: int = NONE,
    offset: int = NONE,
    leader_epoch: int = NONE,
    code: ErrorCode = ErrorCode.none,
) -> Fields:
    return {
        "partition_index": index,
        "error_code": code,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": leader_epoch,
    }
