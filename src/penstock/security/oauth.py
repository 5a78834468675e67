"""Tokens of OAUTHBEARER and HTTP: JSON web tokens, verified with the issuer's keys.

Only asymmetric signatures are accepted. Keys are read from a file or an https URL in a thread pool, and stay
in use while the issuer cannot be reached. Loop thread only, except for `_read_keys`.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.clock import Clock
from penstock.config import (
    SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS,
    SASL_OAUTHBEARER_EXPECTED_AUDIENCE,
    SASL_OAUTHBEARER_EXPECTED_ISSUER,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_URL,
    SASL_OAUTHBEARER_SUB_CLAIM_NAME,
    BrokerConfig,
)
from penstock.errors import ConfigError
from penstock.extras import how_to_install
from penstock.observability.logs import Logger
from penstock.security.scram import MAX_NAME_CHARACTERS
from penstock.threads import Threads

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

ALGORITHMS = [
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
]
MAX_TOKEN_BYTES = 16 * 1024
MAX_KEYS_BYTES = 1 << 20
FETCH_SECONDS = 10.0
RETRY_SECONDS = 10.0
"""Minimum interval in seconds between reads of the keys, even if tokens name unknown keys."""


class TokenRefused(Exception):
    """A token is not accepted. The text is for logs only."""


@dataclass(frozen=True, slots=True)
class TokenLogin:
    user: str
    expires_ms: int


class TokenValidator:
    def __init__(self, config: BrokerConfig, threads: Threads, clock: Clock, logger: Logger) -> None:
        """Create a validator. Raises ConfigError if a setting is missing."""
        self._url = _required(
            config[SASL_OAUTHBEARER_JWKS_ENDPOINT_URL], "sasl.oauthbearer.jwks.endpoint.url"
        )
        audiences = _required(
            config[SASL_OAUTHBEARER_EXPECTED_AUDIENCE], "sasl.oauthbearer.expected.audience"
        )
        self._audiences = frozenset(each.strip() for each in audiences.split(","))
        self._issuer = _required(config[SASL_OAUTHBEARER_EXPECTED_ISSUER], "sasl.oauthbearer.expected.issuer")
        if not self._url.startswith(("https://", "file://")):
            raise ConfigError(
                f"sasl.oauthbearer.jwks.endpoint.url={self._url!r}: give an https:// or file:// URL"
            )
        _check_installed()
        self._user_claim = config[SASL_OAUTHBEARER_SUB_CLAIM_NAME]
        self._skew_seconds = config[SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS]
        self._refresh_seconds = config[SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS] / 1000
        self._threads, self._clock, self._logger = threads, clock, logger
        self._keys: KeySet | None = None
        self._read_at = -RETRY_SECONDS
        self._reading: asyncio.Future[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._refreshing = asyncio.get_running_loop().create_task(self._refresh())

    async def stop(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait([self._refreshing])

    async def validate(self, token: str) -> TokenLogin:
        """Check a token. Raises TokenRefused."""
        if len(token) > MAX_TOKEN_BYTES:
            raise TokenRefused("the token is too long")
        key_id = _key_id(token)
        if not self._knows(key_id):
            await self._read()
        if self._keys is None or not self._knows(key_id):
            raise TokenRefused("the issuer has no key with the key id of the token")
        return self._check(token, self._keys, key_id)

    def _knows(self, key_id: str | None) -> bool:
        if self._keys is None:
            return False
        if key_id is None:
            return len(self._keys.keys) == 1
        return any(key.kid == key_id for key in self._keys.keys)

    def _check(self, token: str, keys: KeySet, key_id: str | None) -> TokenLogin:
        from joserfc import jwt
        from joserfc.errors import JoseError

        key = next(each for each in keys.keys if key_id is None or each.kid == key_id)
        try:
            claims = jwt.decode(token, key, algorithms=ALGORITHMS).claims
        except (JoseError, ValueError, TypeError) as error:
            raise TokenRefused(f"the signature cannot be verified ({type(error).__name__})") from None
        now, skew = self._clock.now_ms() / 1000, self._skew_seconds
        expires, issued = _time(claims, "exp"), _time(claims, "iat")
        if expires is None or expires <= now - skew:
            raise TokenRefused("the token has expired, or has no exp")
        if issued is None or issued > now + skew:
            raise TokenRefused("the token was issued in the future, or has no iat")
        if (_time(claims, "nbf") or 0) > now + skew:
            raise TokenRefused("the token is not valid yet")
        if claims.get("iss") != self._issuer:
            raise TokenRefused("the issuer (iss) of the token is not the configured one")
        audience = claims.get("aud")
        if not self._audiences & set([audience] if isinstance(audience, str) else audience or ()):
            raise TokenRefused("the audience (aud) of the token is not a configured one")
        user = claims.get(self._user_claim)
        if not isinstance(user, str) or not 0 < len(user) <= MAX_NAME_CHARACTERS or not user.isprintable():
            raise TokenRefused(f"the token has no user name in {self._user_claim}")
        return TokenLogin(user, int(expires * 1000))

    async def _refresh(self) -> None:
        while True:
            await self._read()
            await asyncio.sleep(self._refresh_seconds if self._keys is not None else RETRY_SECONDS)

    async def _read(self) -> None:
        """Read the keys again, unless they were read within RETRY_SECONDS. Concurrent callers wait for the
        same read.
        """
        if self._reading is None:
            if self._clock.monotonic() - self._read_at < RETRY_SECONDS:
                return
            self._read_at = self._clock.monotonic()
            self._reading = asyncio.ensure_future(self._read_once())
        try:
            await asyncio.shield(self._reading)
        finally:
            if self._reading is not None and self._reading.done():
                self._reading = None

    async def _read_once(self) -> None:
        try:
            self._keys = await self._threads.run("background", lambda: _read_keys(self._url))
        except (OSError, ValueError, KeyError) as error:
            self._logger.error_rarely(
                "keys of the token issuer could not be read; the previous keys stay in use", error
            )


def _read_keys(url: str) -> KeySet:
    import urllib.request  # Imported late, because few brokers accept tokens and the module is large.
    from http.client import HTTPException

    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    try:
        with urllib.request.urlopen(url, timeout=FETCH_SECONDS) as response:
            content = response.read(MAX_KEYS_BYTES)
    except HTTPException as error:  # For example a response that ends early, which is not an OSError.
        raise ValueError(f"the response cannot be read ({type(error).__name__})") from None
    document = json.loads(content)
    found = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(found, list) or not all(isinstance(key, dict) for key in found):
        raise ValueError("the response is not a JSON Web Key set")
    keys = [key for key in found if key.get("kty") in ("RSA", "EC", "OKP")]
    try:
        return KeySet.import_key_set({"keys": keys})
    except JoseError as error:
        raise ValueError(f"the key set is malformed ({type(error).__name__})") from None


def _key_id(token: str) -> str | None:
    from joserfc.util import urlsafe_b64decode

    try:
        header: Any = json.loads(urlsafe_b64decode(token.split(".")[0].encode()))
        key_id = header.get("kid")
    except (ValueError, AttributeError):
        raise TokenRefused("the token is not a signed JSON Web Token") from None
    if key_id is not None and not isinstance(key_id, str):
        raise TokenRefused("the key id of the token is not a string")
    return key_id


def _time(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _required(value: str | None, name: str) -> str:
    if value is None:
        raise ConfigError(f"{name} is not set: OAUTHBEARER needs it")
    return value


def _check_installed() -> None:
    try:
        import joserfc  # noqa: F401
    except ImportError:
        raise ConfigError(
            f"OAUTHBEARER needs joserfc, which is not installed; install it with {how_to_install('oauth')}"
        ) from None
