"""A message as a consumer gets it.

Key and value are decoded when they are looked at: bytes that do not fit raise inside the reader's own loop, where
`raw` can still be used, and not between two messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from penstock.client.errors import NotDeserializable
from penstock.client.serializers import Deserializer
from penstock.model import TopicPartition
from penstock.records.content import content_crc, content_size


@dataclass(frozen=True, slots=True)
class Message:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """The producer's time or the broker's, as the topic is set; milliseconds since 1970, -1 if there is none."""
    raw_key: bytes | None
    raw: bytes | None
    """The value as it is stored."""
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
        """`timestamp_ms` as a time with its zone, UTC."""
        return None if self.timestamp_ms < 0 else datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    @property
    def size(self) -> int:
        """Bytes of the key, the value and the names and values of the headers."""
        return content_size(self.raw_key, self.raw, self.headers)

    @property
    def crc(self) -> int:
        """CRC-32C (Castagnoli) of the key's bytes followed by the value's; an absent key or value counts as empty."""
        return content_crc(self.raw_key, self.raw)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def header(self, name: str) -> bytes | None:
        """The last header of that name; None where there is none."""
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
