"""DescribeQuorum (KIP-595, KIP-836), for Kafka's tools: shows the controller as the only voter of a metadata quorum.

There is no such quorum: cluster metadata is in the coordination store, not in a replicated log. The controller is shown
as leader and voter, the other brokers as observers. Offsets are the number of metadata changes that this broker has
applied.
"""

from __future__ import annotations

from typing import Any

from penstock.cluster.image import NO_LEADER
from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerId
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import code_of, message_of
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType

METADATA_TOPIC = "__cluster_metadata"
METADATA_PARTITION = 0
_LISTENER = "PLAINTEXT"


async def handle(request: Request, message: Any) -> Fields:
    try:
        request.require(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        epoch = await request.context.administration.controller_epoch()
    except BrokerError as error:
        return {"error_code": error.code, "error_message": str(error), "topics": (), "nodes": ()}
    topics = [
        {
            "topic_name": topic.topic_name,
            "partitions": [
                _partition(request, topic.topic_name, asked.partition_index, epoch)
                for asked in topic.partitions
            ],
        }
        for topic in message.topics
    ]
    return {"error_code": ErrorCode.none, "error_message": None, "topics": topics, "nodes": _nodes(request)}


API = Api(55, 0, 2, handle)


def _partition(request: Request, topic: str, index: int, epoch: int) -> Fields:
    image = request.context.image
    error = None
    if (topic, index) != (METADATA_TOPIC, METADATA_PARTITION):
        error = BrokerError(ErrorCode.unknown_topic_or_partition)
    elif image.controller_id == NO_LEADER:
        error = BrokerError(ErrorCode.leader_not_available, "no controller is elected at the moment; retry")
    fields = {"partition_index": index, "error_code": code_of(error), "error_message": message_of(error)}
    if error is not None:
        return {**fields, "leader_id": NO_LEADER, "current_voters": (), "observers": ()}
    end_offset = request.context.metadata.last_applied + 1
    now_ms = request.context.clock.now_ms()
    return {
        **fields,
        "leader_id": image.controller_id,
        "leader_epoch": epoch,
        "high_watermark": end_offset,
        "current_voters": [_replica(image.controller_id, end_offset, now_ms)],
        "observers": [
            _replica(broker_id, end_offset) for broker_id in image.brokers if broker_id != image.controller_id
        ],
    }


def _replica(broker_id: BrokerId, offset: int, caught_up_ms: int = -1) -> Fields:
    return {
        "replica_id": broker_id,
        "replica_directory_id": None,
        "log_end_offset": offset,
        "last_fetch_timestamp": caught_up_ms,
        "last_caught_up_timestamp": caught_up_ms,
    }


def _nodes(request: Request) -> list[Fields]:
    """Address of the controller, as the only node."""
    image = request.context.image
    controller = image.brokers.get(image.controller_id)
    if controller is None:
        return []
    listener = {"name": _LISTENER, "host": controller.host, "port": controller.port}
    return [{"node_id": controller.node_id, "listeners": [listener]}]
