"""AlterReplicaLogDirs (KIP-113): accepts only the directory in which a replica already is, because a broker has one
data directory.
"""

from __future__ import annotations

import os
from typing import Any

from penstock.config import LOG_DIR
from penstock.errors import ErrorCode
from penstock.model import TopicPartition
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType


def handle(request: Request, message: Any) -> Fields:
    topics: dict[str, list[Fields]] = {}
    for directory in message.dirs:
        for topic in directory.topics:
            partitions = topics.setdefault(topic.name, [])
            for index in topic.partitions:
                code = _check(request, directory.path, topic.name, index)
                partitions.append({"partition_index": index, "error_code": code})
    results = [{"topic_name": name, "partitions": partitions} for name, partitions in topics.items()]
    return {"throttle_time": NO_TIME, "results": results}


API = Api(34, 1, 2, handle)


def _check(request: Request, path: str, topic: str, index: int) -> ErrorCode:
    if not request.allowed(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return ErrorCode.cluster_authorization_failed
    if path != os.path.abspath(request.context.config[LOG_DIR]):
        return ErrorCode.log_dir_not_found
    partition = request.context.image.partition(TopicPartition(topic, index))
    if partition is None:
        return ErrorCode.unknown_topic_or_partition
    is_here = request.context.node_id in partition.replicas
    return ErrorCode.none if is_here else ErrorCode.not_leader_or_follower
