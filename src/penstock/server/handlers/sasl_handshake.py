"""SaslHandshake at a listener without SASL, which refuses it. At a listener with SASL, `sasl/gate.py` serves it before
dispatch.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.wire.apis import SASL_HANDSHAKE


def handle(request: Request, message: Any) -> Fields:
    return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": ()}


API = Api(SASL_HANDSHAKE, 0, 1, handle)
