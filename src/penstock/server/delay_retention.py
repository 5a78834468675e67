"""Retention of topics with delayed messages: the leader decides, and no pending message is deleted.

Before the leader advances the log start offset, it appends the pending messages below it to the end of the log again;
followers take over its log start offset. If most records of the segments are pending, this would free little space, so
segments that exceed only `retention.bytes`, not `retention.ms`, are kept.
"""

from __future__ import annotations

from functools import partial
from itertools import islice

from penstock.model import Offset
from penstock.replication.delayed_delivery import DelayedLog
from penstock.replication.replica import Replica
from penstock.server.context import BrokerContext
from penstock.storage.retention import retained_from


async def start_without_pending(context: BrokerContext, replica: Replica) -> Offset:
    """New log start offset of a partition with delayed messages, below which no message is pending. It is the current
    log start offset if nothing can be deleted or another broker leads.
    """
    delayed, log = replica.delayed, replica.log
    if delayed is None or not delayed.is_ready:
        return log.log_start_offset
    limit = min(log.last_stable_offset, replica.removable_offset)
    decide = partial(retained_from, log, context.clock.now_ms(), limit)
    start_offset = await context.threads.run("background", decide)
    if start_offset <= log.log_start_offset:
        return log.log_start_offset
    expired = await context.threads.run("background", partial(decide, by_size=False))
    if start_offset > expired and _is_mostly_pending(delayed, expired, start_offset):
        context.replicas.delay_counts.held_segments += sum(
            expired <= segment.base_offset < start_offset for segment in log.segments
        )
        start_offset = expired
    if start_offset > log.log_start_offset and await delayed.move_below(start_offset):
        return start_offset
    return log.log_start_offset


def _is_mostly_pending(delayed: DelayedLog, start: Offset, end: Offset) -> bool:
    most = (end - start) // 2
    stored = (
        each for each in delayed.pending.stored_below(end) if delayed.pending.offset_of(each.message) >= start
    )
    return next(islice(stored, most, None), None) is not None
