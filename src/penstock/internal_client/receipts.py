"""Receipts of messages that a queue has delivered: topic id, partition, offset and the token of the delivery.

    version 1 | topic id 16 | partition 4 | offset 8 | token 16     as URL-safe base64 without padding

A receipt is not signed. The broker draws the token at random, and accepts a settlement only while the lock of
the delivery with this token lasts (`SharePartition.acknowledge`). Pure.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

_VERSION: Final = 1
_RECEIPT = Struct(">B16siq16s")
_CHARACTERS: Final = 60


class Receipt(NamedTuple):
    topic_id: UUID
    partition: int
    offset: int
    token: bytes

    def __str__(self) -> str:
        packed = _RECEIPT.pack(_VERSION, self.topic_id.bytes, self.partition, self.offset, self.token)
        return urlsafe_b64encode(packed).decode().rstrip("=")


def parse_receipt(text: str) -> Receipt:
    """Parse a receipt. Raises ValueError if the text is not a receipt."""
    if len(text) != _CHARACTERS:
        raise ValueError(f"a receipt has {_CHARACTERS} characters; {len(text)} were given")
    try:
        version, topic_id, partition, offset, token = _RECEIPT.unpack(urlsafe_b64decode(text.encode("ascii")))
    except (Error, UnicodeEncodeError) as error:
        raise ValueError("this text is not a receipt") from error
    if version != _VERSION or partition < 0 or offset < 0:
        raise ValueError("this text is not a receipt")
    return Receipt(UUID(bytes=topic_id), partition, offset, token)
