"""DescribeLogDirs: size of each partition on disk."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

from penstock.config import LOG_DIR
from penstock.errors import ErrorCode
from penstock.replication.replica import Replica
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType


def handle(request: Request, message: Any) -> Fields:
    fields = {"throttle_time": NO_TIME, "error_code": ErrorCode.none, "results": ()}
    if not request.allowed(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return fields | {"error_code": ErrorCode.cluster_authorization_failed}
    wanted = None
    if message.topics is not None:
        wanted = {(asked.topic, partition) for asked in message.topics for partition in asked.partitions}
    result = {
        "error_code": ErrorCode.none,
        "log_dir": os.path.abspath(request.context.config[LOG_DIR]),
        "topics": _topics(request, wanted),
        "total_bytes": -1,
        "usable_bytes": request.context.disk.free_bytes(),
        "is_cordoned": False,
    }
    return fields | {"results": [result]}


API = Api(35, 1, 5, handle)


def _topics(request: Request, wanted: Collection[tuple[str, int]] | None) -> list[Fields]:
    partitions: dict[str, list[Fields]] = {}
    for replica in request.context.replicas:
        if wanted is None or (replica.name.topic, replica.name.partition) in wanted:
            partitions.setdefault(replica.name.topic, []).append(_partition_fields(replica))
    return [{"name": name, "partitions": fields} for name, fields in partitions.items()]


def _partition_fields(replica: Replica) -> Fields:
    return {
        "partition_index": replica.name.partition,
        "partition_size": replica.log.size_bytes,
        "offset_lag": 0,
        "is_future_key": False,
    }
