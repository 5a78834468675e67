"""ListPartitionReassignments: reassignments in progress, from the cluster image."""

from __future__ import annotations

from typing import Any

from penstock.cluster.image import ClusterImage, PartitionState, TopicImage
from penstock.errors import BrokerError, ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME, message_of
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType


def handle(request: Request, message: Any) -> Fields:
    error: BrokerError | None = None
    topics: list[Fields] = []
    try:
        request.require(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        topics = _moving(request.context.image, message.topics)
    except BrokerError as refusal:
        error = refusal
    return {
        "throttle_time": NO_TIME,
        "error_code": ErrorCode.none if error is None else error.code,
        "error_message": message_of(error),
        "topics": topics,
    }


API = Api(46, 0, 0, handle)


def _moving(image: ClusterImage, asked: Any) -> list[Fields]:
    """Reassignments of the requested partitions, or of all partitions if `asked` is None."""
    wanted: dict[str, set[int] | None]
    if asked is None:
        wanted = dict.fromkeys(image.topics)
    else:
        wanted = {each.name: set(each.partition_indexes) for each in asked}
    found: list[Fields] = []
    for name, indexes in wanted.items():
        topic = image.topic(name)
        partitions = [] if topic is None else _partitions(topic, indexes)
        if partitions:
            found.append({"name": name, "partitions": partitions})
    return found


def _partitions(topic: TopicImage, indexes: set[int] | None) -> list[Fields]:
    return [
        _fields(index, partition)
        for index, partition in enumerate(topic.partitions)
        if partition.is_reassigning and (indexes is None or index in indexes)
    ]


def _fields(index: int, partition: PartitionState) -> Fields:
    return {
        "partition_index": index,
        "replicas": partition.replicas,
        "adding_replicas": tuple(
            replica for replica in partition.adding_replicas if replica in partition.target_replicas
        ),
        "removing_replicas": partition.removing_replicas,
    }
