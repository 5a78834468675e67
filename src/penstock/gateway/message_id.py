"""The id of a message in a mailbox: opaque to clients, in the order of delivery as text, and checked.

    layout 2 | offset 8 | partition 2 | checksum 4 over these, the topic's id and the user     as base32hex, lower case

The layout is the partition count under which it was written: counts only grow, so within one user's messages the order
of ids is that of delivery. An id of another user, of another topic or with a typing error does not pass.
"""

from __future__ import annotations

from base64 import b32hexdecode, b32hexencode
from binascii import Error
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from penstock.model import TopicId

TEXT_LENGTH = 26
_PLACE = Struct(">HQH")
_CHECKSUM_BYTES = 4
_PADDING = "======"


class MessageId(NamedTuple):
    layout: int
    offset: int
    partition: int


def encode(message_id: MessageId, topic_id: TopicId, user: bytes) -> str:
    place = _PLACE.pack(*message_id)
    return b32hexencode(place + _checksum(place, topic_id, user)).decode()[:TEXT_LENGTH].lower()


def decode(text: str, topic_id: TopicId, user: bytes) -> MessageId | None:
    """None for what is no id of this user in this topic."""
    if len(text) != TEXT_LENGTH or text != text.lower():
        return None
    try:
        data = b32hexdecode(text.upper() + _PADDING)
    except (Error, ValueError):
        return None
    place, checksum = data[: _PLACE.size], data[_PLACE.size :]
    message_id = MessageId(*_PLACE.unpack(place))
    if checksum != _checksum(place, topic_id, user) or encode(message_id, topic_id, user) != text:
        return None
    return message_id


def _checksum(place: bytes, topic_id: TopicId, user: bytes) -> bytes:
    return blake2b(place + topic_id.bytes + user, digest_size=_CHECKSUM_BYTES).digest()
