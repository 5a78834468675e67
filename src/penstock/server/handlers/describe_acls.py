"""DescribeAcls: the access control lists that match a filter. SECURITY_DISABLED while authorization is off."""

from __future__ import annotations

from typing import Any

from penstock.cluster.acls import matching
from penstock.errors import BrokerError, ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.acl_fields import check_access, filter_of, resource_fields
from penstock.server.handlers.administration import NO_TIME
from penstock.server.security import Operation


def handle(request: Request, message: Any) -> Fields:
    fields: Fields = {
        "throttle_time": NO_TIME,
        "error_code": ErrorCode.none,
        "error_message": None,
        "resources": (),
    }
    try:
        check_access(request, Operation.DESCRIBE)
        found = matching(request.context.image, filter_of(message))
    except BrokerError as error:
        return {**fields, "error_code": error.code, "error_message": str(error)}
    return {**fields, "resources": resource_fields(found)}


API = Api(29, 1, 3, handle)
