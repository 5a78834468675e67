"""FindCoordinator: finds the broker that coordinates a group, a transactional id, a share-partition or a named object
(`objects/kind.py`). From version 4 on, a request can have several keys.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType

FIRST_VERSION_WITH_SEVERAL = 4
NOBODY: Fields = {"node_id": -1, "host": "", "port": -1}


class CoordinatorType(IntEnum):
    """Kafka's coordinator types that this broker supports."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


JAVA = "apache-kafka-java "
"""Prefix of the software name of Java clients, whose consumers and admin clients retry COORDINATOR_NOT_AVAILABLE."""


async def handle(request: Request, message: Any) -> Fields:
    kind = getattr(message, "key_type", CoordinatorType.GROUP)
    is_new = kind == CoordinatorType.GROUP and await _is_new_consumer(request)
    if request.version < FIRST_VERSION_WITH_SEVERAL:
        return {"throttle_time": NO_TIME, **await _coordinator(request, kind, message.key, is_new)}
    coordinators = [
        {"key": key, **await _coordinator(request, kind, key, is_new)}
        for key in dict.fromkeys(message.coordinator_keys)
    ]
    return {"throttle_time": NO_TIME, "coordinators": coordinators}


API = Api(10, 0, 6, handle)


async def _is_new_consumer(request: Request) -> bool:
    """True if this request shows for the first time that a Java client is a consumer, while its metadata may lack
    partitions that are being removed.

    The response is then COORDINATOR_NOT_AVAILABLE, after which Java clients refresh their metadata before they join the
    group. Other clients do not get it, because the admin clients of kafka-python and aiokafka would fail.
    """
    request.session.is_consumer = True
    draining = request.context.draining
    is_new = draining is not None and await draining.meet_consumer(request.session)
    return is_new and request.session.software.startswith(JAVA)


async def _coordinator(request: Request, kind: int, key: str, is_new: bool) -> Fields:
    try:
        if kind == CoordinatorType.GROUP:
            request.require(Operation.DESCRIBE, ResourceType.GROUP, key)
            node_id = await request.context.groups.find(key)
            if is_new:
                raise BrokerError(
                    ErrorCode.coordinator_not_available,
                    "the metadata of the client may lack partitions that are being removed; refresh it and retry",
                )
        elif kind == CoordinatorType.TRANSACTION:
            request.require(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
            node_id = await request.context.transactions.find(key)
        elif kind == CoordinatorType.SHARE:
            _check_share_key(key)
            node_id = await request.context.share.coordinator.find(key)
        elif kind in request.context.objects:
            _check_any_right(request)
            node_id = await request.context.objects[kind].coordinator.find(key)
        else:
            raise BrokerError(ErrorCode.invalid_request, f"unknown coordinator type {kind}")
        broker = request.context.image.brokers.get(node_id)
        address = broker.address_for(request.session.listener) if broker is not None else None
        if broker is None or address is None:
            raise BrokerError(ErrorCode.coordinator_not_available, "no coordinator is available; retry")
    except BrokerError as error:
        return {**NOBODY, "error_code": error.code, "error_message": str(error)}
    return {
        "node_id": broker.node_id,
        "host": address.host,
        "port": address.port,
        "error_code": ErrorCode.none,
        "error_message": None,
    }


def _check_any_right(request: Request) -> None:
    """Require a right on at least one topic or group, or DESCRIBE on the cluster. Clients without such a right can
    neither see nor create a named object.
    """
    caller, authorizer = request.caller, request.context.authorizer
    if not any(
        authorizer.has_right_on_any(caller.principal, caller.host, operation, kind)
        for kind in (ResourceType.TOPIC, ResourceType.GROUP)
        for operation in (Operation.DESCRIBE, Operation.READ, Operation.WRITE)
    ):
        request.require(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)


def _check_share_key(key: str) -> None:
    """Raise BrokerError unless the key is `group:topicId:partition`."""
    group_id, _, rest = key.partition(":")
    if not group_id or key.count(":") < 2 or not rest.rpartition(":")[2].isdigit():
        raise BrokerError(
            ErrorCode.invalid_request,
            f"{key[:80]!r} is not the key of a share-partition; give group:topicId:partition",
        )
