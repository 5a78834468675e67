"""Questions for the delayed messages of one partition that this broker leads: their number and one page of them, or one
message with its content.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from penstock.delay.packing import DueMessage
from penstock.errors import BrokerError, ErrorCode
from penstock.replication.delayed_delivery import DelayedLog
from penstock.replication.replica import Replica
from penstock.replication.waiting import settled_by
from penstock.server.context import BrokerContext
from penstock.server.inspection.question import Arguments, Question, integer
from penstock.server.security import Operation
from penstock.storage.delayed_records import WantedMessage, read_messages

MAX_MESSAGES = 1_000


async def _list(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    """One page of messages, by due time, after the message with `after_due_ms` and `after_offset`."""
    _, delayed = await _find(context, arguments)
    limit = min(integer(arguments, "limit", 100), MAX_MESSAGES)
    after = None
    if "after_offset" in arguments:
        after = DueMessage(integer(arguments, "after_due_ms"), integer(arguments, "after_offset"))
    page = delayed.pending.queue.page(after, limit) if limit > 0 else []
    return {"count": len(delayed.pending), "messages": [_show(each) for each in page]}


async def _show_one(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    replica, delayed = await _find(context, arguments)
    message = integer(arguments, "offset", -1)
    due_ms = delayed.pending.due_of(message)
    if due_ms is None:
        raise BrokerError(
            ErrorCode.resource_not_found,
            f"message {message} of {replica.name} is not a pending delayed message",
        )
    wanted = WantedMessage(DueMessage(due_ms, message), delayed.pending.offset_of(message))
    read = await context.threads.run(
        "read", partial(read_messages, replica.log, [wanted], replica.log.high_watermark)
    )
    if not read.stored:
        raise BrokerError(ErrorCode.kafka_storage_error, f"the record of message {message} cannot be read")
    record = read.stored[0].record
    return {
        **_show(wanted.due),
        "stored_ms": record.timestamp,
        "key": record.key,
        "value": record.value,
        "headers": [[name, value] for name, value in record.headers],
    }


def _show(message: DueMessage) -> dict[str, int]:
    return {"offset": message.message, "due_ms": message.due_ms}


async def _find(context: BrokerContext, arguments: Arguments) -> tuple[Replica, DelayedLog]:
    """Find the partition, and wait until the delayed messages among all of its committed records are known."""
    topic, number = str(arguments.get("topic", "")), integer(arguments, "partition")
    if topic not in context.image.topics:
        raise BrokerError(ErrorCode.unknown_topic_or_partition, f"there is no topic {topic[:80]!r}")
    if not context.image.topics[topic].is_delayed:
        raise BrokerError(
            ErrorCode.invalid_request,
            f"{topic} has no delayed messages: it was created without delivery.delay",
        )
    replica = context.replicas.get(topic, number)
    delayed = replica.delayed
    if delayed is not None:
        done, settle = settled_by()
        delayed.when_applied(partial(settle, None))
        await done
    if delayed is None or not delayed.is_ready:
        raise BrokerError(ErrorCode.not_leader_or_follower, f"this broker does not lead {replica.name}")
    return replica, delayed


DELAYED_MESSAGES = Question("delayed_messages", Operation.READ, _list, is_about_topic=True)
DELAYED_MESSAGE = Question("delayed_message", Operation.READ, _show_one, is_about_topic=True)
