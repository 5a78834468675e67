"""The newest offset of each key, for one compaction: bounded, by the hash of the key.

Keys that share a 128-bit hash would be taken for one; such a collision is improbable enough.
"""

from __future__ import annotations

from hashlib import blake2b

BYTES_PER_KEY = 200
"""Memory of an entry in bytes, the growth of the table included."""
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
        """Record the offset of a key; offsets come in order."""
        self._offsets[blake2b(key, digest_size=_HASH_BYTES).digest()] = offset

    def is_outdated(self, key: bytes, offset: int) -> bool:
        """True if a newer record of the same key was recorded."""
        return self._offsets.get(blake2b(key, digest_size=_HASH_BYTES).digest(), -1) > offset
