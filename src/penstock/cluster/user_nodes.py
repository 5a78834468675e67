"""Encoding of users as nodes of the coordination store."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cluster import znodes
from penstock.security.access_token import TokenRecord
from penstock.security.scram import ScramMechanism, ScramRecord
from penstock.security.user import User


def encode_user(user: User) -> bytes:
    scram = {
        str(mechanism): znodes.ScramNode(record.salt, record.iterations, record.stored_key, record.server_key)
        for mechanism, record in user.scram.items()
    }
    tokens = {
        token_id: znodes.TokenNode(each.digest, each.created_ms, each.expires_ms, each.label)
        for token_id, each in user.tokens.items()
    }
    node = znodes.UserNode(
        scram,
        user.credential,
        user.is_disabled,
        tokens,
        dict(user.ended_sessions),
        user.sessions_ended_until_ms,
    )
    return znodes.encode(node)


def decode_user(name: str, data: bytes, version: int) -> User:
    node = znodes.decode(data, znodes.UserNode)
    known: Mapping[str, ScramMechanism] = {str(each): each for each in ScramMechanism}
    scram = {
        known[mechanism]: ScramRecord(each.salt, each.iterations, each.stored_key, each.server_key)
        for mechanism, each in node.scram.items()
        if mechanism in known
    }
    tokens = {
        token_id: TokenRecord(each.digest, each.created_ms, each.expires_ms, each.label)
        for token_id, each in node.tokens.items()
    }
    ended, until_ms = node.ended_sessions, node.sessions_ended_until_ms
    return User(name, scram, node.credential, node.disabled, tokens, ended, until_ms, version)
