"""Choice of the replica that serves a consumer with a rack: the leader, or an in-sync follower in that rack (KIP-392).

Consumers read from followers only if `replica.selector.class` is set. A follower serves records below its own high
watermark, which may be a little lower than the leader's.
"""

from __future__ import annotations

from penstock.config import REPLICA_SELECTOR_CLASS, BrokerConfig, ReplicaSelector
from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerId
from penstock.replication.replica import Replica
from penstock.server.context import BrokerContext


def are_followers_read(config: BrokerConfig) -> bool:
    return config[REPLICA_SELECTOR_CLASS] is ReplicaSelector.RACK_AWARE


def check_reach(replica: Replica, offset: int) -> None:
    """Refuse a fetch offset above the log end of a follower with OFFSET_NOT_AVAILABLE: the leader may have the offset,
    so the consumer retries and does not reset its position.
    """
    if not replica.partition.is_leader and offset > replica.log.log_end_offset:
        raise BrokerError(
            ErrorCode.offset_not_available, f"this follower of {replica.name} does not have the offset yet"
        )


def preferred_read_replica(
    context: BrokerContext, replica: Replica, rack: str, offset: int
) -> BrokerId | None:
    """In-sync follower in the given rack that the consumer should read from; None if it should read from the leader."""
    if not rack or not replica.partition.is_leader or context.image.rack_of(context.node_id) == rack:
        return None
    in_sync, image = replica.partition.in_sync, context.image
    near = [
        (in_sync.followers[member].log_end, -member)
        for member in in_sync.recorded - {context.node_id}
        if image.rack_of(member) == rack
        and not image.is_stopping(member)
        and in_sync.followers[member].log_end >= offset
    ]
    return BrokerId(-max(near)[1]) if near else None
