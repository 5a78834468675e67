"""Cache of batches that were rebuilt for the readers of a projection.

A rebuilt batch has only the matching records of a stored batch. Rebuilding decompresses the stored batch and compresses
the matching records, which costs far more than sending them. Batches with records that may expire are not cached. The
memory is bounded; the oldest batches in the cache are dropped first. Runs in a thread pool, one job at a time.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from penstock.storage.segment import Segment

MAX_REBUILT_BYTES = 8 << 20
"""Maximum size in bytes of the cache of one projection of a partition."""
_LARGEST_SHARE = 8
"""Divisor of `MAX_REBUILT_BYTES` that gives the maximum size of one batch in the cache."""


class RebuiltBatch(NamedTuple):
    content: bytes | bytearray
    base_offset: int
    last_offset: int


class RebuiltBatches:
    def __init__(self, max_bytes: int = MAX_REBUILT_BYTES) -> None:
        self.size_bytes = 0
        """Size of all batches in the cache, in bytes."""
        self._max_bytes = max_bytes
        self._batches: dict[tuple[Segment, int], RebuiltBatch] = {}

    def get(self, segment: Segment, position: int) -> RebuiltBatch | None:
        """The rebuilt form of the batch at a position of a segment; None if it is not in the cache."""
        return self._batches.get((segment, position))

    def add(self, segment: Segment, position: int, batch: RebuiltBatch) -> None:
        """Add a rebuilt batch, which must have all matching records of the stored batch."""
        if len(batch.content) * _LARGEST_SHARE > self._max_bytes or (segment, position) in self._batches:
            return
        self._batches[segment, position] = batch
        self.size_bytes += len(batch.content)
        while self.size_bytes > self._max_bytes:
            self._remove(next(iter(self._batches)))

    def forget(self, segments: Collection[Segment]) -> None:
        """Drop the batches of segments that were removed or changed."""
        for place in [each for each in self._batches if each[0] in segments]:
            self._remove(place)

    def clear(self) -> None:
        self._batches.clear()
        self.size_bytes = 0

    def _remove(self, place: tuple[Segment, int]) -> None:
        self.size_bytes -= len(self._batches.pop(place).content)
