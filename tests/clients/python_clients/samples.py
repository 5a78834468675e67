"""Messages that the client tests send, in a form that can be compared with the messages read back."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HOUR_MS = 3_600_000
STEP_MS = 1_000
PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One message; `offset` is its offset when the samples are written to an empty partition."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def make_samples(count: int) -> list[Sample]:
    """Messages with and without keys, values and headers; text, binary, empty; one per second, from an hour
    ago.
    """
    source = random.Random(7)
    start_ms = int(time.time() * 1_000) - HOUR_MS
    return [_sample(source, offset, start_ms + offset * STEP_MS) for offset in range(count)]


def make_large_samples(count: int, size: int = 900_000) -> list[Sample]:
    value = (bytes(range(256)) * (size // 256 + 1))[:size]
    return [Sample(small.offset, small.timestamp_ms, None, value, ()) for small in make_samples(count)]


def _sample(source: random.Random, offset: int, timestamp_ms: int) -> Sample:
    key = None if offset % 3 == 0 else f"key {offset % 7}".encode()
    values = (f"text {offset} ü".encode(), source.randbytes(4_000), b"", None if key else b"0", bytes(300))
    headers = (("number", str(offset).encode()), ("number", b"again"), ("empty", b"")) if offset % 2 else ()
    return Sample(offset, timestamp_ms, key, values[offset % len(values)], headers)
