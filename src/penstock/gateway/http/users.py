"""Login of HTTP requests by password (Basic), token (Bearer), browser session, one-time ticket or client certificate.

A request without valid credentials gets 401 after a delay, and the response is the same for an unknown user and for a
wrong password. Since a browser adds the cookie of a session to requests of any page, a session request that changes
something also needs the CSRF header.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode

from penstock.config import SSL_PRINCIPAL_MAPPING_RULES, BrokerConfig
from penstock.config.settings import HTTP_LISTENER
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.remote_accounts import RemoteAccounts
from penstock.security.http_session import HttpLogin
from penstock.security.subject import format_subject

COOKIE = "__Host-penstock"
CSRF_HEADER = "x-penstock-csrf"
TICKET = "ticket"
_CHALLENGE = 'Basic realm="penstock", charset="UTF-8", Bearer realm="penstock"'
_SESSION_CHALLENGE = 'Session realm="penstock"'
"""Challenge for pages with their own login form. For the challenge `Basic` a browser would show its password dialog."""
_LOOPBACK = ("127.", "::1", "::ffff:127.")
_METRICS = b"/metrics"
_SAFE = ("GET", "HEAD")

Headers = Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class HttpUsers:
    """Finds the login of an HTTP request. The gateway's process provides the accounts."""

    accounts: RemoteAccounts
    delay_seconds: float
    user_of: Callable[[bytes], str | None] = field(default=lambda _: None)
    """Maps a client certificate to a user; None if no rule matches its subject."""
    on_failure: Callable[[str, str, str], None] = field(default=lambda *_: None)
    """Called after a failed login with the client's address, the user (empty if unknown) and the scheme."""

    async def log_in(
        self, client: str, method: str, headers: Headers, ticket: str = "", certificate: bytes | None = None
    ) -> HttpLogin:
        """Return the login of a request; raises Problem if there is none. The certificate is used only if the request
        has no other credentials.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        scheme, _, content = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        cookie = "" if scheme else session_cookie(headers)
        login: HttpLogin | None = None
        if scheme.lower() == "basic":
            login = await self._basic(client, content.strip())
        elif scheme.lower() == "bearer":
            login = await self.accounts.check_token(content.strip())
        elif ticket:
            login = await self.accounts.redeem_ticket(ticket)
        elif cookie:
            login = await self.accounts.check_session(cookie)
        elif not scheme and certificate is not None:
            user = self.user_of(certificate)
            login = None if user is None else HttpLogin(user)
        elif not scheme:
            raise refusal("the request has no credentials", headers)
        if login is None:
            kind = scheme.lower() or ("ticket" if ticket else "session" if cookie else "certificate")
            self.on_failure(client, _named_user(kind, content), kind)
            await asyncio.sleep(max(0.0, self.delay_seconds - (loop.time() - started)))
            raise refusal("the credentials are not valid", headers)
        if cookie and method not in _SAFE:
            _check_csrf(login, headers)
        return login

    async def check_password(self, client: str, user: str, password: str) -> HttpLogin:
        """Return the login for a user and password; raises Problem if they are wrong."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        login = await self.accounts.check_password(client, user, password)
        if login is None:
            self.on_failure(client, user, "password")
            await asyncio.sleep(max(0.0, self.delay_seconds - (loop.time() - started)))
            raise refusal("the credentials are not valid", {CSRF_HEADER.encode(): b""})
        return login

    async def _basic(self, client: str, encoded: str) -> HttpLogin | None:
        try:
            user, separator, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return None
        if not separator or not user or not password:
            return None
        return await self.accounts.check_password(client, user, password)


def _named_user(kind: str, content: str) -> str:
    """Return the user name in failed credentials; empty if it is unknown."""
    if kind != "basic":
        return ""
    try:
        return base64.b64decode(content.strip(), validate=True).decode().partition(":")[0]
    except (binascii.Error, ValueError):
        return ""


def user_of_certificate(config: BrokerConfig) -> Callable[[bytes], str | None]:
    """Return a function that maps a client certificate to a user, by the rules of the HTTP listener."""
    rules = config.for_listener(HTTP_LISTENER)[SSL_PRINCIPAL_MAPPING_RULES]
    return lambda certificate: rules.user_of(format_subject(certificate))


def session_cookie(headers: Headers) -> str:
    """Return the session cookie in the headers of a request; empty if there is none."""
    # The module http.cookies is not used: its time for a quoted value grows with the square of the length.
    for part in headers.get(b"cookie", b"").decode("latin-1").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def take_ticket(query_string: bytes) -> tuple[str, bytes]:
    """Return the ticket in a query (empty if there is none), and the query without the ticket."""
    if TICKET.encode() not in query_string:
        return "", query_string
    pairs = parse_qsl(query_string.decode("latin-1"), keep_blank_values=True)
    ticket = next((value for name, value in pairs if name == TICKET), "")
    return ticket, urlencode([pair for pair in pairs if pair[0] != TICKET]).encode()


def _check_csrf(login: HttpLogin, headers: Headers) -> None:
    given = headers.get(CSRF_HEADER.encode(), b"")
    if not hmac.compare_digest(login.csrf.encode(), given):
        raise Problem(
            403,
            f"a change in the session of a browser needs the header {CSRF_HEADER}, with `csrf` of GET /v1/session",
            error="CLUSTER_AUTHORIZATION_FAILED",
        )


def refusal(text: str, headers: Headers | None = None) -> Problem:
    """Return the 401 problem of a request without a valid login, with the challenge that suits the client: browser
    session, or Basic and Bearer.
    """
    has_session = headers is not None and (CSRF_HEADER.encode() in headers or session_cookie(headers) != "")
    return Problem(
        401,
        f"{text}; send the name and password of a user (HTTP Basic) or an access token (Bearer)",
        error="SASL_AUTHENTICATION_FAILED",
        headers={"www-authenticate": _SESSION_CHALLENGE if has_session else _CHALLENGE},
    )


def needs_login(raw_path: bytes, client: str) -> bool:
    """True if a request to a system endpoint needs a login: only `/metrics` does, if it comes from another machine."""
    return raw_path == _METRICS and not client.startswith(_LOOPBACK)
