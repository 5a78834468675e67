"""UpdateFeatures (KIP-584): accepts only the current level of a feature, because the levels are fixed by the broker's
version.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME, code_of, message_of
from penstock.server.handlers.api_versions import FEATURES
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType


def handle(request: Request, message: Any) -> Fields:
    try:
        request.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        results = [(update.feature, _check(update)) for update in message.feature_updates]
    except BrokerError as error:
        return _fields(error, [])
    # From version 2 on the response has one error for the whole request; in earlier versions each feature has
    # its own.
    first = next((error for _, error in results if error is not None), None)
    return _fields(first if request.version >= 2 else None, results)


API = Api(57, 0, 2, handle)


def _check(update: Any) -> BrokerError | None:
    level = FEATURES.get(update.feature)
    if level is None:
        reason = f"this broker has no feature {update.feature[:80]!r}; it has {', '.join(sorted(FEATURES))}"
    elif update.max_version_level != level:
        reason = (
            f"level {update.max_version_level} of {update.feature} is not available: "
            f"the level is {level} and changes only with the version of the brokers"
        )
    else:
        return None
    return BrokerError(ErrorCode.invalid_update_version, reason)


def _fields(error: BrokerError | None, results: list[tuple[str, BrokerError | None]]) -> Fields:
    return {
        "throttle_time": NO_TIME,
        "error_code": code_of(error),
        "error_message": message_of(error),
        "results": [
            {"feature": feature, "error_code": code_of(result), "error_message": message_of(result)}
            for feature, result in results
        ],
    }
