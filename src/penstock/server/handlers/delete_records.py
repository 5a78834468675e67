"""DeleteRecords: deletes records below an offset. The response is sent when the new log start offset is durable and on
all in-sync replicas, so that neither a crash nor a new leader can bring the records back.

Pending delayed messages below the offset are deleted, too. Version 2 of the response has their number in a tagged
field, so the leader first reads the log of a topic with `delivery.delay` up to its high watermark.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from penstock.cluster.internal_topics import refuse_internal
from penstock.cluster.views import refuse_view
from penstock.errors import BrokerError, ErrorCode, StorageError
from penstock.model import Offset
from penstock.replication.replica import Replica
from penstock.replication.waiting import settled_by
from penstock.server.cleaning import delete_segments
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.security import Operation, ResourceType

HIGH_WATERMARK = -1
UNKNOWN = -1


async def handle(request: Request, message: Any) -> Fields:
    await _read_delayed(request, message)
    outcomes = {
        (topic.name, asked.partition_index): _advance(
            request, topic.name, asked.partition_index, asked.offset
        )
        for topic in message.topics
        for asked in topic.partitions
    }
    moved = [outcome.replica for outcome in outcomes.values() if isinstance(outcome, _Moved)]
    failure = await _make_durable(request, moved) if moved else None
    if failure is None:
        late = await _replicated(moved, message.timeout)
        outcomes.update({(each.name.topic, each.name.partition): error for each, error in late.items()})
    return {
        "throttle_time": NO_TIME,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _result(asked.partition_index, outcomes[topic.name, asked.partition_index], failure)
                    for asked in topic.partitions
                ],
            }
            for topic in message.topics
        ],
    }


API = Api(21, 0, 2, handle)


class _Moved(NamedTuple):
    """A partition whose log start offset was advanced."""

    replica: Replica
    removed_pending: int
    """Number of pending delayed messages that were deleted."""


async def _read_delayed(request: Request, message: Any) -> None:
    """Wait until the partitions with delayed messages know their pending messages, but no longer than the timeout of
    the request.
    """
    waiting = []
    for topic in message.topics:
        for asked in topic.partitions:
            with suppress(BrokerError):
                delayed = request.context.replicas.get(topic.name, asked.partition_index).delayed
                if delayed is not None:
                    done, settle = settled_by()
                    delayed.when_applied(partial(settle, None))
                    waiting.append(done)
    if waiting:
        await asyncio.wait(waiting, timeout=max(0.0, message.timeout.total_seconds()))


def _advance(request: Request, topic: str, partition: int, offset: int) -> _Moved | BrokerError:
    try:
        request.require(Operation.DELETE, ResourceType.TOPIC, topic)
        refuse_internal(topic)
        refuse_view(request.context.image, topic)
        replica = request.context.replicas.get(topic, partition)
        if not replica.log.config.deletes:
            raise BrokerError(
                ErrorCode.policy_violation,
                f"{topic} is compacted; records of compacted topics cannot be deleted",
            )
        high_watermark = replica.log.high_watermark
        if offset == HIGH_WATERMARK:
            offset = high_watermark
        if not 0 <= offset <= high_watermark:
            raise BrokerError(
                ErrorCode.offset_out_of_range,
                f"offset {offset} is not between 0 and the high watermark {high_watermark}",
            )
        if offset > replica.removable_offset:
            raise BrokerError(
                ErrorCode.policy_violation,
                f"{topic} is archived up to offset {replica.removable_offset}; later records cannot be deleted",
            )
        replica.log.advance_log_start(Offset(offset))
        removed = 0 if replica.delayed is None else replica.delayed.on_log_start()
    except BrokerError as error:
        return error
    return _Moved(replica, removed)


async def _make_durable(request: Request, moved: list[Replica]) -> BrokerError | None:
    """Write the new log start offsets durably, then delete the segments below them. Returns the error if the write
    failed.
    """
    context = request.context
    kept = [(replica, replica.log.log_start_offset) for replica in moved]
    try:
        await context.write_checkpoints(both=True)
    except OSError as error:
        return BrokerError(
            ErrorCode.kafka_storage_error, f"the new log start offset could not be written: {error}"
        )
    for replica, kept_offset in kept:
        with suppress(OSError, StorageError):  # retention, or the next start, deletes the remaining files
            await delete_segments(context, replica, kept_offset)
    return None


async def _replicated(moved: list[Replica], patience: timedelta) -> dict[Replica, BrokerError]:
    """Wait until the in-sync replicas have the new log start offsets. Returns the errors of the partitions for which
    this failed or took longer than `patience`.
    """
    late: dict[Replica, BrokerError] = {}

    async def follow(replica: Replica) -> None:
        try:
            async with asyncio.timeout(max(0.0, patience.total_seconds())):
                await replica.log_start_replicated()
        except BrokerError as error:
            late[replica] = error
        except TimeoutError:
            late[replica] = BrokerError(
                ErrorCode.request_timed_out,
                "not every in-sync replica has applied the new log start offset in time",
            )

    await asyncio.gather(*map(follow, moved))
    return late


def _result(partition: int, outcome: _Moved | BrokerError, failure: BrokerError | None) -> Fields:
    error = failure if isinstance(outcome, _Moved) else outcome
    if error is not None or not isinstance(outcome, _Moved):
        code = ErrorCode.none if error is None else error.code
        return {"partition_index": partition, "low_watermark": UNKNOWN, "error_code": code}
    return {
        "partition_index": partition,
        "low_watermark": outcome.replica.log.log_start_offset,
        "error_code": ErrorCode.none,
        "removed_pending": outcome.removed_pending,
    }
