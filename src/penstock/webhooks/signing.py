"""Signatures of webhook calls, as in Standard Webhooks. Pure.

    webhook-id          identifies the message, the same for every attempt
    webhook-timestamp   seconds since the epoch, of this attempt
    webhook-signature   `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`, for each secret; space-separated

A secret is `whsec_` and the base64 of its bytes, or any other text, whose UTF-8 bytes are the key.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Iterable
from typing import Final

PREFIX: Final = "whsec_"
KEY_BYTES: Final = 32
MAX_SECRET_CHARACTERS: Final = 200


def new_secret(key: bytes) -> str:
    """Text of a new secret from random bytes."""
    return PREFIX + b64encode(key).decode()


def key_of(secret: str) -> bytes:
    """HMAC key of a secret. Raises ValueError if the secret is empty, too long or malformed; its text has no secret."""
    if not 0 < len(secret) <= MAX_SECRET_CHARACTERS:
        raise ValueError(
            f"a secret has 1 to {MAX_SECRET_CHARACTERS} characters, and this one has {len(secret)}"
        )
    if not secret.startswith(PREFIX):
        return secret.encode()
    try:
        key = b64decode(secret.removeprefix(PREFIX), validate=True)
    except (Error, ValueError):
        raise ValueError(f"the text after {PREFIX} is not base64") from None
    if not key:
        raise ValueError(f"there is nothing after {PREFIX}")
    return key


def signature(key: bytes, message_id: str, timestamp_s: int, body: bytes) -> str:
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    return "v1," + b64encode(hmac.digest(key, signed, "sha256")).decode()


def signature_headers(
    keys: Iterable[bytes], message_id: str, timestamp_s: int, body: bytes
) -> list[tuple[str, str]]:
    signatures = " ".join(signature(key, message_id, timestamp_s, body) for key in keys)
    return [
        ("webhook-id", message_id),
        ("webhook-timestamp", str(timestamp_s)),
        ("webhook-signature", signatures),
    ]
