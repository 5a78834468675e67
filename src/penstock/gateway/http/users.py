"""Users of HTTP requests: Basic with the password of a user, Bearer with a token of the configured issuer.

A request without valid credentials gets 401 after a delay; the response does not tell an unknown user from a wrong
password.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass

from penstock.gateway.http.problems import Problem

current_user: ContextVar[str | None] = ContextVar("current_user", default=None)
"""User of the request that the running task serves; None where users do not log in."""

_CHALLENGE = 'Basic realm="penstock", charset="UTF-8"'
_LOOPBACK = ("127.", "::1", "::ffff:127.")
_METRICS = b"/metrics"


@dataclass(frozen=True, slots=True)
class HttpUsers:
    """Checks of credentials, which the process of the gateway provides."""

    check_password: Callable[[str, str, str], Awaitable[bool]]
    """Takes the client's address, a user and a password."""
    check_token: Callable[[str], Awaitable[str | None]] | None
    """Takes a token and returns its user; None where no issuer is configured."""
    delay_seconds: float

    async def log_in(self, client: str, headers: Mapping[bytes, bytes]) -> str:
        """Return the user of a request. Raises a Problem."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        scheme, _, content = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        user: str | None = None
        if scheme.lower() == "basic":
            user = await self._basic(client, content.strip())
        elif scheme.lower() == "bearer" and self.check_token is not None:
            user = await self.check_token(content.strip())
        elif not scheme:
            raise self._refusal("the request has no credentials")
        if user is None:
            await asyncio.sleep(max(0.0, self.delay_seconds - (loop.time() - started)))
            raise self._refusal("the credentials are not valid")
        current_user.set(user)
        return user

    async def _basic(self, client: str, encoded: str) -> str | None:
        try:
            user, separator, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return None
        if not separator or not user or not password:
            return None
        return user if await self.check_password(client, user, password) else None

    def _refusal(self, text: str) -> Problem:
        challenge = _CHALLENGE if self.check_token is None else f'{_CHALLENGE}, Bearer realm="penstock"'
        return Problem(
            401,
            f"{text}; send the name and password of a user (HTTP Basic)",
            error="SASL_AUTHENTICATION_FAILED",
            headers={"www-authenticate": challenge},
        )


def needs_login(raw_path: bytes, client: str) -> bool:
    """Whether a request to a system endpoint needs a user: metrics do, except on the machine itself."""
    return raw_path == _METRICS and not client.startswith(_LOOPBACK)
