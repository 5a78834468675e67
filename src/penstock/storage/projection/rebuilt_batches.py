"""Batches that were made for the readers of a projection: kept in memory, so that further readers need no scan.

A batch of a log has all of its records; a rebuilt one has those that readers are shown. Rebuilding decompresses the
stored batch and compresses the shown records, which costs far more than sending them. Batches with records that may
expire are not kept. The memory is bounded; the batches that were added first are forgotten first. Pool threads, one
job at a time.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from penstock.storage.segment import Segment

MAX_REBUILT_BYTES = 8 << 20
"""Memory in bytes for the batches of one projection of a partition."""
_LARGEST_SHARE = 8
"""A batch of more than this part of the memory is not kept."""


class RebuiltBatch(NamedTuple):
    content: bytes | bytearray
    base_offset: int
    last_offset: int


class RebuiltBatches:
    def __init__(self, max_bytes: int = MAX_REBUILT_BYTES) -> None:
        self.size_bytes = 0
        """Size of the batches that are kept."""
        self._max_bytes = max_bytes
        self._batches: dict[tuple[Segment, int], RebuiltBatch] = {}

    def get(self, segment: Segment, position: int) -> RebuiltBatch | None:
        """The rebuilt form of the batch at a position of a segment, if it is kept."""
        return self._batches.get((segment, position))

    def add(self, segment: Segment, position: int, batch: RebuiltBatch) -> None:
        """Keep a batch with all of its records that readers are shown."""
        if len(batch.content) * _LARGEST_SHARE > self._max_bytes or (segment, position) in self._batches:
            return
        self._batches[segment, position] = batch
        self.size_bytes += len(batch.content)
        while self.size_bytes > self._max_bytes:
            self._remove(next(iter(self._batches)))

    def forget(self, segments: Collection[Segment]) -> None:
        """Forget the batches of segments that were removed or changed."""
        for place in [each for each in self._batches if each[0] in segments]:
            self._remove(place)

    def clear(self) -> None:
        self._batches.clear()
        self.size_bytes = 0

    def _remove(self, place: tuple[Segment, int]) -> None:
        self.size_bytes -= len(self._batches.pop(place).content)
