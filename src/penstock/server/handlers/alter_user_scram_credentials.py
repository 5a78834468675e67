"""AlterUserScramCredentials: creates, changes and deletes credentials of users (KIP-554).

The client derives the salted password, so a password never reaches the broker.
"""

from __future__ import annotations

from typing import Any

from penstock.cluster.users import CredentialChange
from penstock.errors import BrokerError, ErrorCode
from penstock.security.scram import ScramMechanism, ScramRecord, record_of
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType


async def handle(request: Request, message: Any) -> Fields:
    changes = [
        *(CredentialChange(each.name, ScramMechanism.of_code(each.mechanism)) for each in message.deletions),
        *(_upsertion(each) for each in message.upsertions),
    ]
    users = list(dict.fromkeys(change.user for change in changes))
    try:
        request.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        results = await request.context.administration.alter_user_credentials(changes)
    except BrokerError as error:
        results = dict.fromkeys(users, error)
    return {"throttle_time": NO_TIME, "results": [_result(user, results[user]) for user in users]}


API = Api(51, 0, 0, handle)


def _upsertion(each: Any) -> CredentialChange:
    mechanism = ScramMechanism.of_code(each.mechanism)
    if mechanism is None:
        return CredentialChange(each.name, None, ScramRecord(b"", 0, b"", b""))
    salted, salt = bytes(each.salted_password), bytes(each.salt)
    return CredentialChange(each.name, mechanism, record_of(mechanism, salted, salt, each.iterations))


def _result(user: str, error: BrokerError | None) -> Fields:
    return {
        "user": user,
        "error_code": ErrorCode.none if error is None else error.code,
        "error_message": None if error is None else str(error),
    }
