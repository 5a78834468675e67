"""Question for sizes, and times of the first and the newest record, of the partitions of one topic that this broker
leads.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from penstock.errors import BrokerError, ErrorCode, StorageError
from penstock.model import Offset
from penstock.replication.replica import Replica
from penstock.server.context import BrokerContext
from penstock.server.inspection.question import Arguments, Question
from penstock.server.security import Operation

MAX_PARTITIONS = 1_000


async def _answer(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    name = arguments.get("topic")
    topic = context.image.topics.get(name) if isinstance(name, str) else None
    if topic is None:
        raise BrokerError(ErrorCode.unknown_topic_or_partition, f"there is no topic {str(name)[:80]!r}")
    led = []
    for number in range(min(len(topic.partitions), MAX_PARTITIONS)):
        try:
            led.append((number, context.replicas.get(topic.name, number)))
        except BrokerError:
            continue  # another broker leads the partition
    return {"partitions": await context.threads.run("read", partial(_describe, led))}


def _describe(led: list[tuple[int, Replica]]) -> list[dict[str, Any]]:
    return [
        {"partition": number, "bytes": replica.log.size_bytes, **_times(replica)} for number, replica in led
    ]


def _times(replica: Replica) -> dict[str, int | None]:
    """Return the timestamps of the first and of the newest record, in milliseconds; None if there is no record or the
    log cannot be read.
    """
    log = replica.log
    below = Offset(log.high_watermark)
    try:
        first, newest = log.find_timestamp(0, below), log.max_timestamp(below)
    except (StorageError, BrokerError, OSError):
        first = newest = None
    return {
        "first_time_ms": None if first is None else first.timestamp,
        "last_time_ms": None if newest is None else newest.timestamp,
    }


PARTITION_TIMES = Question("partition_times", Operation.DESCRIBE, _answer)
