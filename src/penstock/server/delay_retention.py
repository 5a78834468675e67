"""Retention of topics with delayed messages: only the leader decides, and no pending message is deleted.

The leader stores the pending messages of old segments again, at the end of the log, before the log start moves;
followers follow its log start. Where most records of a segment are pending, storing them again would free little: a
segment that is not expired and only too much by `retention.bytes` stays then.
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
    """New log start of a topic with delayed messages: no message below it is pending. The present one if nothing is
    to be deleted, or another broker leads.
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
