"""DeleteAcls: removes the rules that match the filters. A filter that matches no rule succeeds."""

from __future__ import annotations

from typing import Any

from penstock.errors import BrokerError
from penstock.security.acl import AclBinding, AclFilter
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.acl_fields import check_access, filter_of, matching_fields
from penstock.server.handlers.administration import NO_TIME, code_of, message_of
from penstock.server.security import Operation


async def handle(request: Request, message: Any) -> Fields:
    filters = message.filters
    try:
        check_access(request, Operation.ALTER)
        wanted = [_filter(each) for each in filters]
        deleted = iter(
            await request.context.acl_admin.delete([each for each in wanted if isinstance(each, AclFilter)])
        )
        results = [each if isinstance(each, BrokerError) else next(deleted) for each in wanted]
    except BrokerError as error:
        results = [error] * len(filters)
    return {"throttle_time": NO_TIME, "filter_results": [_result(each) for each in results]}


API = Api(31, 1, 3, handle)


def _filter(each: Any) -> AclFilter | BrokerError:
    try:
        return filter_of(each)
    except BrokerError as error:
        return error


def _result(result: list[AclBinding] | BrokerError) -> Fields:
    return {
        "error_code": code_of(result),
        "error_message": message_of(result),
        "matching_acls": [] if isinstance(result, BrokerError) else matching_fields(result),
    }
