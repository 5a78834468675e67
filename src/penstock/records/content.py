"""Size and checksum of a message's content, which are the same in the Python client, HTTP and Spark.

Both are computed only from key, value and headers, so that any Kafka client can compute them for a received message.
They are not stored: the CRC in the log is of the whole record batch.
"""

from __future__ import annotations

from crc32c import crc32c

Headers = tuple[tuple[str, bytes | None], ...]
HEADER_NAMES = "surrogateescape"
"""Error handler for the encoding of header names. It preserves bytes that are not UTF-8, which Kafka allows."""


def content_size(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """Size in bytes of the key, the value, and the names and values of the headers."""
    size = len(key or b"") + len(value or b"")
    for name, content in headers:
        size += len(name.encode(errors=HEADER_NAMES)) + len(content or b"")
    return size


def content_crc(key: bytes | None, value: bytes | None) -> int:
    """CRC-32C (Castagnoli) of the bytes of the key followed by those of the value; None counts as empty."""
    crc = crc32c(key) if key else 0
    return crc32c(value, crc) if value else crc
