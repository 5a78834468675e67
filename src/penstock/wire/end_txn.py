"""EndTxn, versions 0 to 5, coded by hand because every transaction ends with it.

    request    transactional id | producer id 8 | producer epoch 2 | committed 1
    response   throttle time 4 | error code 2 | from 5: producer id 8 | producer epoch 2

From version 3 the encoding is flexible.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from penstock.errors import ProtocolError
from penstock.wire.reader import MALFORMED, Reader

END_TXN: Final = 26
FLEXIBLE_FROM: Final = 3
PRODUCER_FROM: Final = 5

_PRODUCER_AND_OUTCOME = Struct(">qh?")
_RESPONSE = Struct(">iiih")
_FLEXIBLE_RESPONSE = Struct(">iixihx")
_RESPONSE_WITH_PRODUCER = Struct(">iixihqhx")


class EndTxnRequest(NamedTuple):
    """EndTxn request. The fields have the names of the schema."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


def decode_end_txn(frame: memoryview, position: int, version: int) -> EndTxnRequest:
    reader = Reader(frame, position)
    try:
        transactional_id = reader.compact_string() if version >= FLEXIBLE_FROM else reader.string()
        producer_id, producer_epoch, committed = reader.unpack(_PRODUCER_AND_OUTCOME)
        if version >= FLEXIBLE_FROM:
            reader.skip_tags()
    except MALFORMED as error:
        raise ProtocolError(f"malformed EndTxn request: {error}") from None
    return EndTxnRequest(transactional_id, producer_id, producer_epoch, committed)


def encode_end_txn_response(
    correlation_id: int, version: int, error_code: int, producer_id: int, producer_epoch: int
) -> bytes:
    """Encode a response as a whole frame."""
    if version >= PRODUCER_FROM:
        layout = _RESPONSE_WITH_PRODUCER
        return layout.pack(layout.size - 4, correlation_id, 0, error_code, producer_id, producer_epoch)
    layout = _FLEXIBLE_RESPONSE if version >= FLEXIBLE_FROM else _RESPONSE
    return layout.pack(layout.size - 4, correlation_id, 0, error_code)
