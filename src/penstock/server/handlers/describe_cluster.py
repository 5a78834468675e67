"""DescribeCluster: the brokers and the controller (KIP-700)."""

from __future__ import annotations

from typing import Any

from penstock.errors import ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME, NOT_ASKED
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType

BROKER_ENDPOINT, CONTROLLER_ENDPOINT = 1, 2


def handle(request: Request, message: Any) -> Fields:
    image = request.context.image
    endpoint = getattr(message, "endpoint_type", BROKER_ENDPOINT)
    fields = {
        "throttle_time": NO_TIME,
        "error_code": ErrorCode.none,
        "error_message": None,
        "endpoint_type": BROKER_ENDPOINT,
        "cluster_id": image.cluster_id,
        "controller_id": image.controller_id,
        "brokers": (),
        "cluster_authorized_operations": NOT_ASKED,
    }
    if endpoint != BROKER_ENDPOINT:
        known = endpoint == CONTROLLER_ENDPOINT
        code = ErrorCode.mismatched_endpoint_type if known else ErrorCode.unsupported_endpoint_type
        return fields | {
            "error_code": code,
            "error_message": "this endpoint belongs to a broker; request endpoint type 1 (brokers)",
        }
    fields["brokers"] = [
        {
            "broker_id": broker.node_id,
            "host": address.host,
            "port": address.port,
            "rack": broker.rack,
            "is_fenced": False,
        }
        for broker, address in image.brokers_at(request.session.listener)
    ]
    if message.include_cluster_authorized_operations:
        fields["cluster_authorized_operations"] = cluster_operations(request)
    return fields


API = Api(60, 0, 2, handle)


def cluster_operations(request: Request) -> int:
    if not request.shows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return request.authorized_operations(ResourceType.CLUSTER, CLUSTER_NAME)
