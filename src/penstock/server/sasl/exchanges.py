"""Exchanges of the SASL mechanisms on the broker's side: messages of the client go in, answers come out; no IO.

A step returns a `SaslStep`, or an awaitable of one if a password or token is checked asynchronously. A failed login
raises `LoginFailed` with the text for the client, which is the same as Kafka's; details go only to the log.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.config import SaslMechanism
from penstock.security.oauth import TokenLogin, TokenRefused
from penstock.security.scram import (
    MAX_NAME_CHARACTERS,
    ScramError,
    ScramMechanism,
    ScramRecord,
    ScramServer,
)
from penstock.server.sasl.accounts import Account, Accounts
from penstock.server.security import Login

_SEPARATOR = b"\x01"


class LoginFailed(Exception):
    """Failed login. The text is for the client, `detail` for the log."""

    def __init__(self, text: str, detail: str = "", user: str = "") -> None:
        super().__init__(text)
        self.detail = detail
        self.user = user


@dataclass(frozen=True, slots=True)
class SaslStep:
    answer: bytes
    login: Login | None = None


class SaslExchange(Protocol):
    def step(self, message: bytes) -> SaslStep | Awaitable[SaslStep]:
        """Answer the next message. Raises LoginFailed."""
        ...


def invalid_credentials(mechanism: str) -> str:
    """Kafka's error message for a failed login."""
    return f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"


class ScramExchange:
    def __init__(self, mechanism: ScramMechanism, accounts: Accounts, server_nonce: str) -> None:
        self._mechanism = mechanism
        self._accounts = accounts
        self._account: Account | None = None
        self._has_begun = False
        self._server = ScramServer(mechanism, self._find, server_nonce)

    def step(self, message: bytes) -> SaslStep:
        try:
            if not self._has_begun:
                self._has_begun = True
                return SaslStep(self._server.first(message))
            answer = self._server.final(message)
        except ScramError as error:
            raise self._failed(str(error)) from None
        account = self._account
        if account is None or not self._accounts.is_current(account):
            raise self._failed("the user does not exist, is disabled or has just changed")
        return SaslStep(answer, Login(account.user, account.credential))

    def _find(self, user: str) -> ScramRecord:
        self._account, record = self._accounts.scram(user, self._mechanism)
        return record

    def _failed(self, detail: str) -> LoginFailed:
        return LoginFailed(invalid_credentials(self._mechanism), detail, self._server.user)


class PlainExchange:
    def __init__(self, accounts: Accounts, host: str) -> None:
        self._accounts = accounts
        self._host = host

    async def step(self, message: bytes) -> SaslStep:
        user, password = _plain_parts(message)
        account = await self._accounts.check_password(self._host, user, password)
        if account is None:
            raise LoginFailed("Authentication failed: Invalid username or password", "", user)
        return SaslStep(b"", Login(account.user, account.credential))


def _plain_parts(message: bytes) -> tuple[str, str]:
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise LoginFailed("Invalid SASL/PLAIN response: expected UTF-8 text") from None
    if len(parts) != 3:
        raise LoginFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
    authorization, user, password = parts
    if not user:
        raise LoginFailed("Authentication failed: username not specified")
    if not password:
        raise LoginFailed("Authentication failed: password not specified", "", user)
    if authorization and authorization != user:
        raise LoginFailed(
            "Authentication failed: Client requested an authorization id that is different from username",
            "",
            user,
        )
    if len(user) > MAX_NAME_CHARACTERS:
        raise LoginFailed("Authentication failed: Invalid username or password", "the name is too long")
    return user, password


class OauthExchange:
    """OAUTHBEARER (RFC 7628): after a refused token the client gets a JSON error and sends one more message, after
    which the login fails.
    """

    def __init__(self, validate: Callable[[str], Awaitable[TokenLogin]]) -> None:
        self._validate = validate
        self._refusal: LoginFailed | None = None

    async def step(self, message: bytes) -> SaslStep:
        if self._refusal is not None:
            raise self._refusal
        authorization, token = _bearer_parts(message)
        try:
            login = await self._validate(token)
        except TokenRefused as refusal:
            self._refusal = LoginFailed(
                invalid_credentials(SaslMechanism.OAUTHBEARER), str(refusal), authorization
            )
            return SaslStep(json.dumps({"status": "invalid_token"}).encode())
        if authorization and authorization != login.user:
            raise LoginFailed(
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name",
                "",
                login.user,
            )
        return SaslStep(b"", Login(login.user, expires_ms=login.expires_ms))


def _bearer_parts(message: bytes) -> tuple[str, str]:
    """Authorization id and token in the client's first message: `n,a=NAME,^Aauth=Bearer TOKEN^A^A`."""
    malformed = LoginFailed(invalid_credentials(SaslMechanism.OAUTHBEARER), "the message is malformed")
    header, separator, rest = message.partition(_SEPARATOR)
    try:
        parts = header.decode().split(",")
        pairs = rest.decode("ascii").split(_SEPARATOR.decode())
    except UnicodeDecodeError:
        raise malformed from None
    if not separator or len(parts) != 3 or parts[0] != "n" or parts[2] or pairs[-2:] != ["", ""]:
        raise malformed
    if parts[1] and not parts[1].startswith("a="):
        raise malformed
    fields = dict(pair.partition("=")[::2] for pair in pairs if pair)
    scheme, _, token = fields.get("auth", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise malformed
    return parts[1][2:], token.strip()
