"""Signed sessions of browsers: the cookie contains user, credential id and expiry, and is valid at every
gateway.

    cookie   base64url(payload) "." base64url(HMAC-SHA-256 of the payload)
    payload  JSON: [user, credential id, expiry in epoch milliseconds, random id]

The key is derived from the cluster secret. The CSRF token of a session is derived from its payload, so only
pages that can read responses of the gateway know it.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from dataclasses import dataclass

import msgspec

_NONCE_BYTES = 16
_CSRF_BYTES = 16
MAX_COOKIE_CHARACTERS = 4_096


@dataclass(frozen=True, slots=True)
class HttpLogin:
    """User of an HTTP request, and the credentials with which the user logged in."""

    user: str
    credential: str = ""
    """Credential id of the user at the time of the login; empty for a token of an OAuth issuer."""
    token_id: str = ""
    """Id of the access token that was used to log in; empty for other logins."""
    expires_ms: int = 0
    """Time at which the login expires, in milliseconds since the epoch; 0 if it does not expire."""
    csrf: str = ""
    """Token that requests for changes must contain; empty unless the login is a browser session."""
    session_id: str = ""
    """Id of the browser session; empty for other logins."""


def session_key(cluster_secret: str) -> bytes:
    return hmac.digest(cluster_secret.encode(), b"penstock HTTP session", "sha256")


def sign_session(key: bytes, user: str, credential: str, expires_ms: int, nonce: bytes) -> str:
    payload = msgspec.json.encode([user, credential, expires_ms, nonce[:_NONCE_BYTES].hex()])
    return f"{_encode(payload)}.{_encode(hmac.digest(key, payload, 'sha256'))}"


def read_session(key: bytes, cookie: str) -> HttpLogin | None:
    """Login of a cookie; None unless this cluster signed it. The caller has to check expiry and credential."""
    if len(cookie) > MAX_COOKIE_CHARACTERS:
        return None
    encoded, _, signature = cookie.partition(".")
    try:
        payload = _decode(encoded)
        if not hmac.compare_digest(hmac.digest(key, payload, "sha256"), _decode(signature)):
            return None
        user, credential, expires_ms, session_id = msgspec.json.decode(
            payload, type=tuple[str, str, int, str]
        )
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        return None
    csrf = _encode(hmac.digest(key, b"csrf" + payload, "sha256")[:_CSRF_BYTES])
    return HttpLogin(user, credential, "", expires_ms, csrf, session_id)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
