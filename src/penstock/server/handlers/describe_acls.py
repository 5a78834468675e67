"""DescribeAcls: an empty list, as from a Kafka without ACLs; MirrorMaker, which copies ACLs, accepts that."""

from __future__ import annotations

from typing import Any

from penstock.errors import ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME


def handle(_request: Request, _message: Any) -> Fields:
    return {
        "throttle_time": NO_TIME,
        "error_code": ErrorCode.security_disabled,
        "error_message": "there are no access control lists here",
        "resources": (),
    }


API = Api(29, 1, 3, handle)
