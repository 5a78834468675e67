"""Sealed secrets: AES-256-GCM under a key that is derived from the cluster secret. Pure.

    nonce 12 | ciphertext and tag

The name of the webhook is authenticated, so a sealed secret cannot be moved to another webhook. Clients with read
access to the internal topic of webhooks see only sealed secrets.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

NONCE_BYTES: Final = 12
_KEY_BYTES: Final = 32
_PURPOSE: Final = b"penstock webhook secrets 1"


class CannotUnseal(ValueError):
    """The secret was sealed under another cluster secret, or is damaged."""


def seal(cluster_secret: str, webhook: str, secret: str, nonce: bytes) -> bytes:
    """Seal a secret; `nonce` must be random, with `NONCE_BYTES` bytes."""
    return nonce + _cipher(cluster_secret).encrypt(nonce, secret.encode(), webhook.encode())


def unseal(cluster_secret: str, webhook: str, sealed: bytes) -> str:
    try:
        opened = _cipher(cluster_secret).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], webhook.encode())
    except (InvalidTag, ValueError):
        raise CannotUnseal(
            f"the secret of webhook {webhook!r} was stored under another cluster secret; set a new one with "
            f"`penstock webhook rotate-secret {webhook}`"
        ) from None
    return opened.decode()


def _cipher(cluster_secret: str) -> AESGCM:
    derived = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=_PURPOSE)
    return AESGCM(derived.derive(cluster_secret.encode()))
