"""Fast path of Produce for the most common request: one batch for one partition, without a transactional id.

The fast path makes the same checks as the general path (`handlers/produce.py`), through the same functions and in the
same order, without the work for several partitions, held batches and transactions. If the batch has to be held, the
request takes the general path.
"""

from __future__ import annotations

from penstock.errors import BrokerError
from penstock.model import Offset
from penstock.net.response import Parts, PendingResponse
from penstock.replication.admission import ACKS_NONE
from penstock.server.context import BrokerContext
from penstock.server.dispatch import Session
from penstock.server.produce_routes import ProduceRoute
from penstock.server.produce_rules import (
    FIRST_ZSTD_VERSION,
    remember_refusal,
    unanswerable,
    writable_topic,
)
from penstock.server.produce_waits import ProduceWait


def handle_plain(
    context: BrokerContext,
    session: Session,
    frame: memoryview,
    position: int,
    version: int,
    correlation_id: int,
) -> Parts | PendingResponse | None:
    """Append the batch of a plain request and respond. Returns None if the request has to take the general path."""
    found = context.produce_routes.find(frame, position, version)
    if found is None:
        return None
    route, records = found
    session.is_producer = True
    acks, log_start_offset = route.acks, -1
    try:
        name = writable_topic(context, session, route.topic, route.topic_id)
        replica = context.replicas.get(name, route.index)
        info = replica.append(
            records, context.clock.now_ms(), None, acks, None, version >= FIRST_ZSTD_VERSION
        )
        if info is None:
            context.produce_routes.forget(route)
            return None
        if replica.notes_writers:
            context.on_draining_write(session, replica.name)
        log_start_offset = info.log_start_offset
        waiters = replica.acknowledging(info, acks)
    except BrokerError as error:
        return _refuse(context, route, correlation_id, records, error, log_start_offset)
    if waiters is not None:
        wait = ProduceWait(route.waits, route.responses, correlation_id, replica, info, context.metrics)
        waiters.add(Offset(info.last_offset + 1), wait.on_commit)
        route.waits.add(wait)
        return wait
    if acks == ACKS_NONE:
        return []
    return [
        route.responses.encode(correlation_id, info.base_offset, info.log_append_time_ms, log_start_offset)
    ]


def _refuse(
    context: BrokerContext,
    route: ProduceRoute,
    correlation_id: int,
    records: memoryview,
    error: BrokerError,
    log_start_offset: int,
) -> Parts:
    remember_refusal(context, route.topic, route.topic_id, route.index, records, error)
    context.metrics.produce_failed(error.code)
    if route.acks == ACKS_NONE:
        raise unanswerable(error.code)
    return [route.responses.encode_refusal(correlation_id, error, log_start_offset)]
