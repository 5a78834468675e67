"""Decisions of the authorizer about clients of a gateway in a process of its own."""

from __future__ import annotations

from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.server.context import BrokerContext
from penstock.server.inspection.question import Arguments, Question, text
from penstock.server.security import ANONYMOUS, Operation, Principal, ResourceType

MAX_CHECKS = 2_000


async def _authorize(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    user, host, checks = text(arguments, "user"), text(arguments, "host"), arguments.get("checks")
    if not isinstance(checks, list) or len(checks) % 3 or len(checks) > 3 * MAX_CHECKS:
        raise BrokerError(ErrorCode.invalid_request, f"give at most {MAX_CHECKS} checks, three texts each")
    principal = Principal("User", user) if user else ANONYMOUS
    try:
        wanted = [
            (Operation[operation], ResourceType[kind], name)
            for operation, kind, name in zip(checks[::3], checks[1::3], checks[2::3], strict=True)
        ]
    except KeyError as error:
        raise BrokerError(ErrorCode.invalid_request, f"unknown operation or resource type {error}") from None
    return {"allowed": [context.authorizer.authorize(principal, host, *each) for each in wanted]}


AUTHORIZE = Question("authorize", Operation.CLUSTER_ACTION, _authorize, is_for_gateways=True)
