"""Size and checksum of a message's content, the same in the Python client, HTTP and Spark.

Both follow from key, value and headers alone, so any Kafka client can compute them from a message that it received.
They are not stored: the CRC in the log covers the whole record batch.
"""

from __future__ import annotations

from crc32c import crc32c

Headers = tuple[tuple[str, bytes | None], ...]
HEADER_NAMES = "surrogateescape"
"""Error handling for the encoding of header names. Kafka does not check that a name is UTF-8; other bytes survive."""


def content_size(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """Size in bytes of the key, the value, and the names and values of the headers."""
    size = len(key or b"") + len(value or b"")
    for name, content in headers:
        size += len(name.encode(errors=HEADER_NAMES)) + len(content or b"")
    return size


def content_crc(key: bytes | None, value: bytes | None) -> int:
    """CRC-32C (Castagnoli) of the key's bytes followed by the value's; an absent key or value counts as empty."""
    crc = crc32c(key) if key else 0
    return crc32c(value, crc) if value else crc
