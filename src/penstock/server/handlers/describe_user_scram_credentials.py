"""DescribeUserScramCredentials: mechanisms and iterations of users, without secrets (KIP-554)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType


def handle(request: Request, message: Any) -> Fields:
    fields: Fields = {
        "throttle_time": NO_TIME,
        "error_code": ErrorCode.none,
        "error_message": None,
        "results": (),
    }
    try:
        request.require(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    except BrokerError as error:
        return {**fields, "error_code": error.code, "error_message": str(error)}
    users = request.context.image.users
    named = [user.name for user in message.users] if message.users else sorted(users)
    counts = Counter(named)
    return {**fields, "results": [_describe(request, name, count) for name, count in counts.items()]}


API = Api(50, 0, 0, handle)


def _describe(request: Request, name: str, count: int) -> Fields:
    fields: Fields = {
        "user": name,
        "error_code": ErrorCode.none,
        "error_message": None,
        "credential_infos": (),
    }
    user = request.context.image.users.get(name)
    if count > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return {**fields, "error_code": ErrorCode.duplicate_resource, "error_message": text}
    if user is None or not user.scram:
        text = f"Attempt to describe a user credential that does not exist: {name}"
        return {**fields, "error_code": ErrorCode.resource_not_found, "error_message": text}
    infos = [
        {"mechanism": mechanism.code, "iterations": record.iterations}
        for mechanism, record in sorted(user.scram.items())
    ]
    return {**fields, "credential_infos": infos}
