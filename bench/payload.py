"""Message values: random, or half compressible like text, from a fixed seed so that runs are equal."""

from __future__ import annotations

import random

DISTINCT = 64


def random_values(size: int) -> list[bytes]:
    source = random.Random(size)
    return [source.randbytes(size) for _ in range(DISTINCT)]


def compressible_values(size: int) -> list[bytes]:
    """About half of each value is random hexadecimal, the rest repeats a few words."""
    source = random.Random(size)
    words = b"partition offset leader epoch "
    return [(source.randbytes(size // 4).hex().encode() + words * size)[:size] for _ in range(DISTINCT)]
