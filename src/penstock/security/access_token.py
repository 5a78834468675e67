"""Access tokens of users for HTTP (Bearer): `pst_USER.ID.SECRET`, with the name of the user in base64url.

The coordination store has the SHA-256 of the secret. The secret is random and as long as the digest, so a
slow key derivation is not needed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass, field

PREFIX = "pst_"
ID_BYTES = 8
SECRET_BYTES = 32
MAX_TOKENS = 100
"""Maximum number of tokens of one user."""
MAX_LABEL_CHARACTERS = 100
NEVER_MS = 0


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """Access token as the coordination store has it."""

    digest: bytes
    created_ms: int
    expires_ms: int = NEVER_MS
    """Time at which the token expires, in milliseconds since the epoch; 0 if it does not expire."""
    label: str = ""

    def is_valid(self, now_ms: int) -> bool:
        return self.expires_ms == NEVER_MS or now_ms < self.expires_ms


@dataclass(frozen=True, slots=True)
class AccessToken:
    user: str
    id: str
    secret: bytes = field(repr=False)

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(self.secret).digest()

    def text(self) -> str:
        return f"{PREFIX}{_encode(self.user.encode())}.{self.id}.{_encode(self.secret)}"

    def matches(self, record: TokenRecord) -> bool:
        return hmac.compare_digest(self.digest, record.digest)


def parse_token(text: str) -> AccessToken | None:
    """Parse a token; None if the text is not a token."""
    if not text.startswith(PREFIX):
        return None
    try:
        user, token_id, secret = text.removeprefix(PREFIX).split(".")
        return AccessToken(_decode(user).decode(), token_id, _decode(secret))
    except (ValueError, binascii.Error):
        return None


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
