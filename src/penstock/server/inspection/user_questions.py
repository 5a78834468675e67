"""Questions about users for which Kafka has no request: disabled users, and access tokens.

Requests may be repeated, so a change that was already made succeeds.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.security.access_token import MAX_LABEL_CHARACTERS, TokenRecord
from penstock.server.context import BrokerContext
from penstock.server.inspection.question import Arguments, Question, integer, text
from penstock.server.security import Operation

_DIGEST_BYTES = 32
_MAX_ID_CHARACTERS = 32


async def _list(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    """Name, disabled flag and access tokens of one user, or of all users that are disabled or have tokens."""
    wanted = text(arguments, "user")
    users = context.image.users
    if wanted and wanted not in users:
        raise BrokerError(ErrorCode.resource_not_found, f"there is no user {wanted[:80]!r}")
    shown = [users[wanted]] if wanted else list(users.values())
    return {
        "users": [
            {
                "name": user.name,
                "disabled": user.is_disabled,
                "tokens": [
                    {
                        "id": token_id,
                        "label": token.label,
                        "created_ms": token.created_ms,
                        "expires_ms": token.expires_ms,
                    }
                    for token_id, token in user.tokens.items()
                ],
            }
            for user in shown
            if wanted or user.is_disabled or user.tokens
        ]
    }


async def _disable(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    user, is_disabled = text(arguments, "user"), bool(integer(arguments, "disabled", 1))
    await context.administration.users.set_disabled(user, is_disabled)
    return {}


async def _add_token(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    token_id, label = text(arguments, "id"), text(arguments, "label")
    if not token_id or len(token_id) > _MAX_ID_CHARACTERS or not token_id.isalnum():
        raise BrokerError(ErrorCode.invalid_request, "the id of the token is malformed")
    if len(label) > MAX_LABEL_CHARACTERS or not label.isprintable():
        raise BrokerError(
            ErrorCode.invalid_request, f"a label has at most {MAX_LABEL_CHARACTERS} printable characters"
        )
    try:
        digest = bytes.fromhex(text(arguments, "digest"))
    except ValueError:
        digest = b""
    if len(digest) != _DIGEST_BYTES:
        raise BrokerError(ErrorCode.invalid_request, "the digest of the token is malformed")
    lifetime_ms, now_ms = integer(arguments, "lifetime_ms"), context.clock.now_ms()
    if lifetime_ms < 0:
        raise BrokerError(ErrorCode.invalid_request, "the lifetime of the token is negative")
    record = TokenRecord(digest, now_ms, now_ms + lifetime_ms if lifetime_ms else 0, label)
    await context.administration.users.add_token(text(arguments, "user"), token_id, record)
    return {}


async def _revoke_token(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    await context.administration.users.remove_token(text(arguments, "user"), text(arguments, "id"))
    return {}


USER_QUESTIONS = (
    Question("users", Operation.DESCRIBE, _list),
    Question("disable_user", Operation.ALTER, _disable),
    Question("add_token", Operation.ALTER, _add_token),
    Question("revoke_token", Operation.ALTER, _revoke_token),
)
