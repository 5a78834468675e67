"""Questions of a gateway that runs as a separate process: whether its clients are authorized, and how long its users
have to wait for their quotas.
"""

from __future__ import annotations

import math
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.context import CLIENT_ID
from penstock.security.quota import QuotaKey
from penstock.server.context import BrokerContext
from penstock.server.inspection.question import Arguments, Question, integer, text
from penstock.server.security import ANONYMOUS, Operation, Principal, ResourceType

MAX_CHECKS = 2_000
MAX_WAIT_SECONDS = 3_600


async def _authorize(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    user, host, checks = text(arguments, "user"), text(arguments, "host"), arguments.get("checks")
    if not isinstance(checks, list) or len(checks) % 3 or len(checks) > 3 * MAX_CHECKS:
        raise BrokerError(ErrorCode.invalid_request, f"give at most {MAX_CHECKS} checks, three strings each")
    principal = Principal("User", user) if user else ANONYMOUS
    try:
        wanted = [
            (Operation[operation], ResourceType[kind], name)
            for operation, kind, name in zip(checks[::3], checks[1::3], checks[2::3], strict=True)
        ]
    except KeyError as error:
        raise BrokerError(ErrorCode.invalid_request, f"unknown operation or resource type {error}") from None
    # Hiding an entry of a list is not a refused request, so a filter records nothing.
    decide = context.authorizer.shows if arguments.get("is_filter") else context.authorizer.authorize
    return {"allowed": [decide(principal, host, *each) for each in wanted]}


async def _charge_user(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    user, quotas = text(arguments, "user"), context.quotas
    if quotas is None or not user:
        return {"write_wait_ms": 0, "read_wait_ms": 0}
    received, sent, microseconds = (
        max(0, integer(arguments, name)) for name in ("received", "sent", "microseconds")
    )
    quotas.charge(QuotaKey.PRODUCER_BYTE_RATE, user, CLIENT_ID, received)
    quotas.charge(QuotaKey.CONSUMER_BYTE_RATE, user, CLIENT_ID, sent)
    quotas.on_gateway_request(user, CLIENT_ID, microseconds / 1e6)
    waits = [quotas.wait_of_user(user, CLIENT_ID, writes=writes) for writes in (True, False)]
    write_ms, read_ms = (math.ceil(min(wait, MAX_WAIT_SECONDS) * 1000) for wait in waits)
    return {"write_wait_ms": write_ms, "read_wait_ms": read_ms}


AUTHORIZE = Question("authorize", Operation.CLUSTER_ACTION, _authorize, is_for_gateways=True)
CHARGE_USER = Question("charge_user", Operation.CLUSTER_ACTION, _charge_user, is_for_gateways=True)
