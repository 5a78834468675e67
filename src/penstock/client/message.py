"""A message as a consumer receives it.

Key and value are decoded when the properties are read, so the error for bytes that cannot be decoded is raised inside
the caller's loop, where `raw` is available, and not between two messages.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from penstock.client.errors import NotDeserializable
from penstock.client.serializers import Deserializer
from penstock.model import TopicPartition
from penstock.records.content import content_crc, content_size
from penstock.records.expiry import is_expired, read_number

Source = TypeVar("Source")


@dataclass(frozen=True, slots=True)
class Message:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Timestamp set by the producer or the broker, depending on `message.timestamp.type`; milliseconds since 1970, -1
    if unknown.
    """
    raw_key: bytes | None
    raw: bytes | None
    """The value as stored, not decoded."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    _decode_key: Deserializer = field(default=bytes, repr=False, compare=False)
    _decode_value: Deserializer = field(default=bytes, repr=False, compare=False)

    @property
    def key(self) -> Any:
        return self._decoded(self._decode_key, self.raw_key, "key")

    @property
    def value(self) -> Any:
        return self._decoded(self._decode_value, self.raw, "value")

    @property
    def timestamp(self) -> datetime | None:
        """`timestamp_ms` as a datetime in UTC."""
        return None if self.timestamp_ms < 0 else datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    @property
    def size(self) -> int:
        """Size of key, value, header names and header values in bytes."""
        return content_size(self.raw_key, self.raw, self.headers)

    @property
    def crc(self) -> int:
        """CRC-32C (Castagnoli) of the key followed by the value; a missing key or value counts as empty."""
        return content_crc(self.raw_key, self.raw)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def attempt(self) -> int:
        """Number of this delivery: 1 for the first, increased by each retry (`Consumer.retry`)."""
        failed = read_number(self.header("penstock-retry-attempts"))
        return 1 if failed is None else failed + 1

    def header(self, name: str) -> bytes | None:
        """Return the last header of that name; None if there is none."""
        return next((value for each, value in reversed(self.headers) if each == name), None)

    def _decoded(self, decode: Callable[[bytes], Any], stored: bytes | None, role: str) -> Any:
        if stored is None:
            return None
        try:
            return decode(stored)
        except (TypeError, ValueError) as error:
            place = f"{self.topic_partition} at {self.offset}"
            raise NotDeserializable(
                f"the {role} of {place} cannot be decoded: {error}; its bytes are in raw"
            ) from error


def take_live(
    ready: deque[Source], taken: list[Source], count: int, make: Callable[[Source], Message]
) -> list[Message]:
    """Move sources from `ready` to `taken` and return their messages, without expired ones, until `count` are found."""
    found: list[Message] = []
    now_ms = time.time_ns() // 1_000_000
    while ready and len(found) < count:
        taken.append(ready.popleft())
        message = make(taken[-1])
        if not (message.headers and is_expired(message.timestamp_ms, message.headers, now_ms)):
            found.append(message)
    return found
