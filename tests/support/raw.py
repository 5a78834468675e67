"""A small blocking Kafka client that can send anything: requests of any API and version, or arbitrary bytes.

kio encodes and decodes, not the broker's code, so that both do not share a mistake. Every wait is bounded: a
peer that neither responds nor closes the connection in time fails the test.
"""

from __future__ import annotations

import dataclasses
import io
import socket
import struct
import time
import typing
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

PATIENCE_SECONDS = 30.0
CORRELATION_ID = 77

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID = 18, 19, 20, 21, 22
OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS, ALTER_CONFIGS, DESCRIBE_LOG_DIRS, CREATE_PARTITIONS = (
    23,
    32,
    33,
    35,
    37,
)
INCREMENTAL_ALTER_CONFIGS, ALTER_PARTITION_REASSIGNMENTS = 44, 45
DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 60, 75
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = range(8, 15)
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 42, 47
DESCRIBE_PRODUCERS, CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE, LIST_CONFIG_RESOURCES = 61, 68, 69, 74


class NotClosed(AssertionError):
    """The broker kept a connection open that it should have closed."""


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def header(api_key: int, version: int, client_id: str | None = "hostile") -> bytes:
    """A request header in the version that belongs to the API."""
    content = struct.pack(">hhi", api_key, version, CORRELATION_ID)
    if client_id is None:
        content += b"\xff\xff"
    else:
        encoded = client_id.encode()
        content += struct.pack(">h", len(encoded)) + encoded
    return content + (b"\x00" if is_flexible(api_key, version) else b"")


def is_flexible(api_key: int, version: int) -> bool:
    return load_request_schema(api_key, version).__flexible__


def body(api_key: int, version: int, **fields: Any) -> bytes:
    """A request body. Dicts and lists of dicts become entities; missing fields are empty."""
    return encode(load_request_schema(api_key, version), fields)


def request(api_key: int, version: int, *, client_id: str | None = "hostile", **fields: Any) -> bytes:
    """A request frame with size and header."""
    return framed(header(api_key, version, client_id) + body(api_key, version, **fields))


def encode(entity: Any, fields: dict[str, Any]) -> bytes:
    with io.BytesIO() as buffer:
        entity_writer(entity)(buffer, _entity(entity, fields))
        return buffer.getvalue()


def decode_response(api_key: int, version: int, frame: bytes) -> Any:
    """Decode a response frame without its size, and check that no bytes remain."""
    schema = load_response_schema(api_key, version)
    _, size = entity_reader(schema.__header_schema__)(frame, 0)
    message, read = entity_reader(schema)(frame, size)
    assert size + read == len(frame), "the response has bytes behind its end"
    return message


def _entity(schema: Any, fields: dict[str, Any]) -> Any:
    hints = typing.get_type_hints(schema)
    values = {}
    for field in dataclasses.fields(schema):
        if field.name in fields:
            values[field.name] = _value(hints[field.name], field, fields[field.name])
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            values[field.name] = _empty(hints[field.name], field)
    return schema(**values)


def _value(hint: Any, field: Any, value: Any) -> Any:
    kind = field.metadata.get("kafka_type", "")
    if isinstance(value, int) and kind.startswith("timedelta"):
        return timedelta(milliseconds=value)
    if isinstance(value, int) and kind.startswith("datetime"):
        return datetime.fromtimestamp(value / 1000, UTC)
    if isinstance(value, dict):
        return _entity(_element(hint), value)
    if isinstance(value, list):
        element = _element(hint)
        return tuple(_entity(element, item) if isinstance(item, dict) else item for item in value)
    return value


def _element(hint: Any) -> Any:
    """The entity inside `Entity`, `Entity | None`, `tuple[Entity, ...]` or `tuple[Entity, ...] | None`."""
    for inner in typing.get_args(hint):
        if inner not in (type(None), ...):
            return _element(inner)
    return hint


def _empty(hint: Any, field: Any) -> Any:
    kind = field.metadata.get("kafka_type", "")
    if type(None) in typing.get_args(hint):
        return None
    if typing.get_origin(hint) is tuple:
        return ()
    if kind == "string":
        return ""
    if kind in ("bytes", "records"):
        return b""
    if kind == "bool":
        return False
    if kind.startswith("timedelta"):
        return timedelta(0)
    if dataclasses.is_dataclass(hint):
        return _entity(hint, {})
    return 0


class RawClient:
    def __init__(self, port: int, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self.patience_seconds = patience_seconds
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=patience_seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, content: bytes | memoryview) -> None:
        self.socket.sendall(content)

    def finish_sending(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def read_frame(self) -> bytes:
        """Read the content of the next frame; ConnectionError if the broker closes the connection."""
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        content = bytearray()
        while len(content) < size:
            part = self.socket.recv(min(size - len(content), 1 << 20))
            if not part:
                raise ConnectionError("closed by the broker")
            content += part
        return bytes(content)

    def call(self, api_key: int, version: int, **fields: Any) -> Any:
        """Send a request and decode its response."""
        self.send(request(api_key, version, **fields))
        return decode_response(api_key, version, self.read_frame())

    def read_until_closed(self) -> bytes:
        """Read until the broker closes the connection; NotClosed if it does not close in time."""
        deadline = time.monotonic() + self.patience_seconds
        content = bytearray()
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise NotClosed(f"still open after {self.patience_seconds} s")
            self.socket.settimeout(left)
            try:
                part = self.socket.recv(1 << 16)
            except TimeoutError:
                raise NotClosed(f"still open after {self.patience_seconds} s") from None
            except ConnectionError:
                return bytes(content)
            if not part:
                return bytes(content)
            content += part

    def expect_refused(self) -> None:
        """Expect that the broker closes the connection without a response."""
        answer = self.read_until_closed()
        assert answer == b"", f"an answer came before the close: {answer[:80]!r}"
