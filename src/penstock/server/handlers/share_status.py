"""ShareStatus: counts of records by state, for the share-partitions of a group on this broker, for `penstock group
describe`.
"""

from __future__ import annotations

from penstock.errors import BrokerError
from penstock.net.response import Answer
from penstock.queues.share_leader import ShareLeader
from penstock.queues.states import DeadReason
from penstock.server.dispatch import Api, Request
from penstock.server.security import Operation, ResourceType
from penstock.wire.apis import SHARE_STATUS
from penstock.wire.share_status import (
    ShareStatus,
    decode_share_status_request,
    encode_share_status_response,
)

NO_LOCK = -1
_REASONS = (DeadReason.REJECTED, DeadReason.ATTEMPTS, DeadReason.EXPIRED, DeadReason.OVERFLOW)


def handle(request: Request, frame: memoryview, position: int) -> Answer:
    group_id = decode_share_status_request(frame, position)
    correlation_id = request.header.correlation_id
    try:
        request.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
    except BrokerError as error:
        return [encode_share_status_response(correlation_id, (), error.code)]
    now_ms, names = request.context.share.partitions.timers.now_ms(), request.context.image.topic_names
    found = [
        _status(leader, topic, now_ms)
        for leader in request.context.share.partitions.all
        if leader.key.group_id == group_id
        and leader.partition is not None
        and (topic := names.get(leader.key.topic_id)) is not None
        and request.shows(Operation.DESCRIBE, ResourceType.TOPIC, topic)
    ]
    return [encode_share_status_response(correlation_id, found)]


API = Api(SHARE_STATUS, 0, 0, handle_raw=handle)


def _status(leader: ShareLeader, topic: str, now_ms: int) -> ShareStatus:
    partition = leader.partition
    assert partition is not None
    deadline_ms = partition.oldest_deadline_ms()
    age_ms = NO_LOCK if deadline_ms is None else max(0, now_ms - (deadline_ms - leader.lock_ms))
    return ShareStatus(
        topic,
        leader.key.partition,
        partition.start_offset,
        partition.acquired,
        partition.released,
        age_ms,
        partition.waiting,
        partition.archiving,
        partition.redelivered,
        *(leader.letters.written.get(reason, 0) for reason in _REASONS),
    )
