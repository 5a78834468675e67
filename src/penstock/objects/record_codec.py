"""Codec of the records of a kind's internal topic.

    key     version 2 (0) | name (length 2)
    value   version 2 (0) | state in MessagePack; fields that a reader does not know are ignored

`decode_record` raises UnknownRecord and nothing else, whatever the bytes are. Pure; any thread.
"""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from penstock.state_log.replaying import UnknownRecord
from penstock.wire import primitives as p
from penstock.wire.reader import MALFORMED, Reader

S = TypeVar("S", bound=msgspec.Struct)

_VERSION: Final = 0
_VERSION_BYTES: Final = 2


class ObjectRecord(NamedTuple, Generic[S]):
    name: str
    state: S | None
    """State of the object; None is a tombstone."""


class ObjectCodec(Generic[S]):
    def __init__(self, state: type[S]) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(state)

    def encode_record(self, record: ObjectRecord[S]) -> tuple[bytes, bytes | None]:
        """Return the encoded key and value; the value of a tombstone is None."""
        key = p.INT16(_VERSION) + p.string(record.name)
        if record.state is None:
            return key, None
        return key, p.INT16(_VERSION) + self._encoder.encode(record.state)

    def decode_record(self, key: bytes, value: bytes | None) -> ObjectRecord[S]:
        try:
            reader = Reader(memoryview(key))
            _check_version(reader.int16())
            name = reader.string()
            if value is None:
                return ObjectRecord(name, None)
            _check_version(Reader(memoryview(value)).int16())
            return ObjectRecord(name, self._decoder.decode(memoryview(value)[_VERSION_BYTES:]))
        except (*MALFORMED, msgspec.MsgspecError, UnicodeError) as error:
            raise UnknownRecord(f"malformed record: {error}") from None


def _check_version(version: int) -> None:
    if version != _VERSION:
        raise UnknownRecord(f"unknown version {version}")
