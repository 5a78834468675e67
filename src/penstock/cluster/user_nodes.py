"""Encoding of users as nodes of the coordination store."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cluster import znodes
from penstock.security.scram import ScramMechanism, ScramRecord
from penstock.security.user import User


def encode_user(user: User) -> bytes:
    scram = {
        str(mechanism): znodes.ScramNode(record.salt, record.iterations, record.stored_key, record.server_key)
        for mechanism, record in user.scram.items()
    }
    return znodes.encode(znodes.UserNode(scram, user.credential, user.is_disabled))


def decode_user(name: str, data: bytes, version: int) -> User:
    node = znodes.decode(data, znodes.UserNode)
    known: Mapping[str, ScramMechanism] = {str(each): each for each in ScramMechanism}
    scram = {
        known[mechanism]: ScramRecord(each.salt, each.iterations, each.stored_key, each.server_key)
        for mechanism, each in node.scram.items()
        if mechanism in known
    }
    return User(name, scram, node.credential, node.disabled, version)
