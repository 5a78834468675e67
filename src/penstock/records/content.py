"""Size and checksum of a message's content, defined alike for the Python client, HTTP and Spark.

Both follow from key, value and headers alone, so any Kafka client can compute them from a message that it received.
They are not stored: the CRC in the log is that of the whole record batch.
"""

from __future__ import annotations

from crc32c import crc32c

Headers = tuple[tuple[str, bytes | None], ...]
HEADER_NAMES = "surrogateescape"
"""How header names are decoded and encoded. Kafka does not check that a name is UTF-8; other bytes survive this way."""


def content_size(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """Bytes of the key, the value and the names and values of the headers."""
    size = len(key or b"") + len(value or b"")
    for name, content in headers:
        size += len(name.encode(errors=HEADER_NAMES)) + len(content or b"")
    return size


def content_crc(key: bytes | None, value: bytes | None) -> int:
    """CRC-32C (Castagnoli) of the key's bytes followed by the value's; an absent key or value counts as empty."""
    crc = crc32c(key) if key else 0
    return crc32c(value, crc) if value else crc
