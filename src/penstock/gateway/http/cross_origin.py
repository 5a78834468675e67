"""Cross-origin requests (CORS): only web pages of the configured origins may use the gateway from a browser.

Credentials are never allowed across origins. A browser sends WebSocket handshakes and POSTs without a body
for a page of any origin, and withholds only the response. So this module checks the origin of every request
that may change something.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from penstock.config import GATEWAY_ALLOWED_ORIGINS, HTTP_SSL_ENABLE, BrokerConfig
from penstock.gateway.http.host_names import HostNames
from penstock.gateway.http.problems import Problem

_MAX_AGE_SECONDS = 600
_EXPOSED = b"x-request-id, retry-after, location"
_TAKEN = "content-type, idempotency-key, last-event-id, x-penstock-csrf"

Headers = Mapping[bytes, bytes]


class CrossOrigin:
    def __init__(self, config: BrokerConfig) -> None:
        self._host_names = HostNames(config)
        self._has_tls = config[HTTP_SSL_ENABLE]
        self._allowed = frozenset(origin.encode() for origin in config[GATEWAY_ALLOWED_ORIGINS] or ())

    def apply(self, headers: Headers, response: list[tuple[bytes, bytes]]) -> None:
        """Add the headers that let a page of an allowed origin read the response.

        Raises Problem if a browser used a host name that does not belong to this gateway.
        """
        self._host_names.check(headers)
        if not self._allowed:
            return
        response.append((b"vary", b"origin"))
        origin = headers.get(b"origin", b"")
        if origin in self._allowed:
            response.append((b"access-control-allow-origin", origin))
            response.append((b"access-control-expose-headers", _EXPOSED))

    def preflight(self, headers: Headers, methods: list[str]) -> Response:
        response = Response(status_code=204, headers={"allow": ", ".join(methods)})
        if headers.get(b"origin", b"") in self._allowed:
            response.headers["access-control-allow-methods"] = ", ".join(methods)
            response.headers["access-control-allow-headers"] = _TAKEN
            response.headers["access-control-max-age"] = str(_MAX_AGE_SECONDS)
        return response

    def check(self, headers: Headers) -> None:
        """Raise Problem for a request from a page of another origin, even if browsers send it without preflight."""
        self._host_names.check(headers)
        if self.is_foreign(headers):
            raise Problem(
                403,
                "requests from pages of this origin are not allowed; gateway.allowed.origins lists the allowed ones",
            )

    def is_foreign(self, headers: Headers) -> bool:
        """True if the request comes from a web page of an origin that is neither this gateway's nor configured."""
        origin = headers.get(b"origin", b"")
        if not origin or origin in self._allowed:
            return False
        scheme, _, place = origin.partition(b"://")
        # If the gateway uses TLS, a plaintext page of its own address can only come from an attacker on the network.
        return place != headers.get(b"host", b"") or (self._has_tls and scheme != b"https")
