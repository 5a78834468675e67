"""CreateAcls: adds rules to access control lists. Adding a rule that already exists succeeds."""

from __future__ import annotations

from typing import Any

from penstock.errors import BrokerError
from penstock.security.acl import AclBinding
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.acl_fields import binding_of, check_access
from penstock.server.handlers.administration import NO_TIME, code_of, message_of
from penstock.server.security import Operation


async def handle(request: Request, message: Any) -> Fields:
    creations = message.creations
    try:
        check_access(request, Operation.ALTER)
        wanted = [_binding(creation) for creation in creations]
        valid = list(dict.fromkeys(each for each in wanted if isinstance(each, AclBinding)))
        outcomes = await request.context.acl_admin.create(valid)
    except BrokerError as error:
        results: list[BrokerError | None] = [error] * len(creations)
    else:
        results = [each if isinstance(each, BrokerError) else outcomes[each] for each in wanted]
    return {
        "throttle_time": NO_TIME,
        "results": [{"error_code": code_of(each), "error_message": message_of(each)} for each in results],
    }


API = Api(30, 1, 3, handle)


def _binding(creation: Any) -> AclBinding | BrokerError:
    try:
        return binding_of(creation)
    except BrokerError as error:
        return error
