"""Request and response headers.

request   api key 2 | api version 2 | correlation id 4 | client id (classic nullable string) | tagged fields
response  correlation id 4 | tagged fields                    (tagged fields in flexible versions only)
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from penstock.errors import ProtocolError
from penstock.wire.apis import FLEXIBLE_FROM, has_flexible_response_header
from penstock.wire.reader import MALFORMED, Reader

_REQUEST = Struct(">hhih")
_REQUEST_SIZE = _REQUEST.size
_read_request = _REQUEST.unpack_from
_CORRELATION_ID = Struct(">i")
_NO_TAGS = b"\x00"


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """Decode a header. Returns it with the position of the body. Raises ProtocolError for an unknown API."""
    api_key, version, correlation_id, client_id, position = read_request_header(frame)
    return RequestHeader(api_key, version, correlation_id, client_id), position


def read_request_header(frame: memoryview) -> tuple[int, int, int, str | None, int]:
    """Decode a header. Returns the fields of a RequestHeader and the position of the body. Raises
    ProtocolError for an unknown API.
    """
    try:
        api_key, version, correlation_id, length = _read_request(frame)
        flexible_from = FLEXIBLE_FROM.get(api_key)
        if flexible_from is None:
            raise ProtocolError(f"unknown api key {api_key}")
        position = _REQUEST_SIZE + length if length > 0 else _REQUEST_SIZE
        if version < 0 or length < -1 or position > len(frame):
            raise ProtocolError("malformed request header")
        client_id = None if length < 0 else str(frame[_REQUEST_SIZE:position], "utf-8")
        if version >= flexible_from:
            position = _skip_tags(frame, position)
    except MALFORMED as error:
        raise ProtocolError(f"malformed request header: {error}") from None
    return api_key, version, correlation_id, client_id, position


def _skip_tags(frame: memoryview, position: int) -> int:
    if frame[position] == 0:  # No tagged fields, as from every known client.
        return position + 1
    reader = Reader(frame, position)
    reader.skip_tags()
    return reader.position


def encode_request_header(header: RequestHeader) -> bytes:
    client_id = b"" if header.client_id is None else header.client_id.encode()
    length = -1 if header.client_id is None else len(client_id)
    fixed = _REQUEST.pack(header.api_key, header.api_version, header.correlation_id, length)
    return fixed + client_id + (_NO_TAGS if header.api_version >= FLEXIBLE_FROM[header.api_key] else b"")


def encode_response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    encoded = _CORRELATION_ID.pack(correlation_id)
    return encoded + _NO_TAGS if has_flexible_response_header(api_key, version) else encoded


def decode_response_header(api_key: int, version: int, frame: memoryview) -> tuple[int, int]:
    """Return the correlation id and the position of the body."""
    reader = Reader(frame)
    try:
        correlation_id = reader.int32()
        if has_flexible_response_header(api_key, version):
            reader.skip_tags()
    except MALFORMED as error:
        raise ProtocolError(f"malformed response header: {error}") from None
    return correlation_id, reader.position
