"""Requests and responses of every API and version with a schema. The most frequent ones have decoders by hand
in other modules as well.

Decoded messages are kio's frozen dataclasses (durations are timedeltas, a topic id of zeros is None).
Encoding takes nested mappings with kio's field names; durations may be numbers of milliseconds. Malformed
bytes raise ProtocolError and nothing else. Bytes after the end of a message within its frame are ignored, as
in Kafka: the Metadata request of librdkafka 2.x for all topics has three extra bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import ProtocolError
from penstock.wire import primitives
from penstock.wire.decoding import struct_reader
from penstock.wire.encoding import message_encoder
from penstock.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from penstock.wire.reader import MALFORMED, MAX_ELEMENTS, NO_LIMIT, Reader
from penstock.wire.schema import Direction, load_entity

Fields = Mapping[str, Any]


def decode_request(api_key: int, version: int, frame: memoryview, position: int) -> Any:
    """Decode the body that begins at `position` and ends with the frame."""
    return _decode("request", api_key, version, Reader(frame, position, MAX_ELEMENTS))


def decode_response(api_key: int, version: int, frame: memoryview, position: int) -> Any:
    """Decode a response body, without a limit on the number of array elements."""
    return _decode("response", api_key, version, Reader(frame, position, NO_LIMIT))


def decode_response_frame(api_key: int, version: int, frame: memoryview) -> Any:
    _, position = decode_response_header(api_key, version, frame)
    return decode_response(api_key, version, frame, position)


def encode_request(api_key: int, version: int, fields: Fields) -> bytes:
    return message_encoder("request", api_key, version)(fields)


def encode_response(api_key: int, version: int, fields: Fields) -> bytes:
    return message_encoder("response", api_key, version)(fields)


def encode_request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, fields: Fields
) -> bytes:
    header = RequestHeader(api_key, version, correlation_id, client_id)
    return primitives.frame(encode_request_header(header), encode_request(api_key, version, fields))


def encode_response_frame(header: RequestHeader, fields: Fields) -> bytes:
    """Encode the whole response to the request with this header."""
    api_key, version = header.api_key, header.api_version
    encoded_header = encode_response_header(api_key, version, header.correlation_id)
    return primitives.frame(encoded_header, encode_response(api_key, version, fields))


def _decode(direction: Direction, api_key: int, version: int, reader: Reader) -> Any:
    read = struct_reader(load_entity(direction, api_key, version))
    try:
        message = read(reader)
    except MALFORMED as error:
        raise ProtocolError(f"malformed {direction} of api key {api_key}: {error}") from None
    return message
