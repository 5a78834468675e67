"""SaslAuthenticate at a listener without SASL, which refuses it. At a listener with SASL, `sasl/gate.py` serves it
before dispatch.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from penstock.errors import ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.wire.apis import SASL_AUTHENTICATE


def handle(request: Request, message: Any) -> Fields:
    return {
        "error_code": ErrorCode.illegal_sasl_state,
        "error_message": "SaslAuthenticate request received after successful authentication",
        "auth_bytes": b"",
        "session_lifetime": timedelta(0),
    }


API = Api(SASL_AUTHENTICATE, 0, 2, handle)
