"""Id of a message in a mailbox: opaque to clients, sortable in the order of delivery, and protected by a
checksum.

    layout 2 | offset 8 | partition 2 | checksum 4 over these, the topic's id and the user     in hexadecimal

The layout is the number of the layout (partition count) under which the message was written (`KeyLayout.number`). Later
layouts have greater numbers, so the ids of one user's messages sort in the order of delivery. Because of the checksum,
an id of another user or topic, or one with a typing error, is refused.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from penstock.model import TopicId

_PLACE = Struct(">HQH")
_CHECKSUM_BYTES = 4
TEXT_LENGTH = 2 * (_PLACE.size + _CHECKSUM_BYTES)


class MailboxMessageId(NamedTuple):
    layout: int
    offset: int
    partition: int


def encode(message_id: MailboxMessageId, topic_id: TopicId, user: bytes) -> str:
    place = _PLACE.pack(*message_id)
    return (place + _checksum(place, topic_id, user)).hex()


def decode(text: str, topic_id: TopicId, user: bytes) -> MailboxMessageId | None:
    """Parse an id; None if it is not the id of a message to this user in this topic."""
    try:
        data = bytes.fromhex(text)
    except ValueError:
        return None
    place, checksum = data[: _PLACE.size], data[_PLACE.size :]
    # The same bytes have several hexadecimal texts (upper case, spaces). Only one of them is a valid id.
    if data.hex() != text or checksum != _checksum(place, topic_id, user):
        return None
    return MailboxMessageId(*_PLACE.unpack(place))


def _checksum(place: bytes, topic_id: TopicId, user: bytes) -> bytes:
    return blake2b(place + topic_id.bytes + user, digest_size=_CHECKSUM_BYTES).digest()
