"""The newest offset of each key in a compaction pass, by the hash of the key. The memory is bounded.

Two keys with the same 128-bit hash would count as one key; such a collision is improbable enough to be ignored.
"""

from __future__ import annotations

from hashlib import blake2b

BYTES_PER_KEY = 200
"""Estimated memory of an entry in bytes, including the free space of the hash table."""
_HASH_BYTES = 16


class KeyOffsets:
    def __init__(self, max_bytes: int) -> None:
        self._max_keys = max(1, max_bytes // BYTES_PER_KEY)
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self._max_keys

    def record(self, key: bytes, offset: int) -> None:
        """Record the offset of a key. Offsets must be given in ascending order."""
        self._offsets[blake2b(key, digest_size=_HASH_BYTES).digest()] = offset

    def is_outdated(self, key: bytes, offset: int) -> bool:
        """True if a newer record of the same key was recorded."""
        return self._offsets.get(blake2b(key, digest_size=_HASH_BYTES).digest(), -1) > offset
