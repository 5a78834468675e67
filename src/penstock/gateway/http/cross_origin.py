"""Which web pages may use the gateway from a browser (CORS): those of the origins that are configured, else none.

Credentials are never allowed across origins. Browsers hold back neither a WebSocket nor a POST without a body, only its
answer: so the origin of whatever may change something is checked here.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from penstock.config import GATEWAY_ALLOWED_ORIGINS, BrokerConfig
from penstock.gateway.http.problems import Problem

_MAX_AGE_SECONDS = 600
_EXPOSED = b"x-request-id, retry-after, location"
_TAKEN = "content-type, idempotency-key, last-event-id"

Headers = Mapping[bytes, bytes]


class CrossOrigin:
    def __init__(self, config: BrokerConfig) -> None:
        self._allowed = frozenset(origin.encode() for origin in config[GATEWAY_ALLOWED_ORIGINS] or ())

    def apply(self, headers: Headers, answer: list[tuple[bytes, bytes]]) -> None:
        if not self._allowed:
            return
        answer.append((b"vary", b"origin"))
        origin = headers.get(b"origin", b"")
        if origin in self._allowed:
            answer.append((b"access-control-allow-origin", origin))
            answer.append((b"access-control-expose-headers", _EXPOSED))

    def preflight(self, headers: Headers, methods: list[str]) -> Response:
        answer = Response(status_code=204, headers={"allow": ", ".join(methods)})
        if headers.get(b"origin", b"") in self._allowed:
            answer.headers["access-control-allow-methods"] = ", ".join(methods)
            answer.headers["access-control-allow-headers"] = _TAKEN
            answer.headers["access-control-max-age"] = str(_MAX_AGE_SECONDS)
        return answer

    def check(self, headers: Headers) -> None:
        """A Problem for a page of another origin, whatever browsers let it do."""
        if self.is_foreign(headers):
            raise Problem(
                403, "pages of this origin may not do this; gateway.allowed.origins names those that may"
            )

    def is_foreign(self, headers: Headers) -> bool:
        """Whether the request comes from a web page of another origin that is not allowed."""
        origin = headers.get(b"origin", b"")
        if not origin or origin in self._allowed:
            return False
        return origin.partition(b"://")[2] != headers.get(b"host", b"")
