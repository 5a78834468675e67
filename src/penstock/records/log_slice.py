"""A range of record bytes in a segment file, which can be sent to a client without being copied into memory.

A slice keeps its file open, because the segment may be deleted or its descriptor evicted before it is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, final


class SliceFile(Protocol):
    """The part of `storage.disk.File` that a slice uses."""

    def pread(self, position: int, length: int) -> bytes:
        """Read up to `length` bytes; fewer only at the end of the file. May wait for the disk."""
        ...

    def pread_cached(self, position: int, length: int) -> bytes | None:
        """Read as `pread` does; None if that would wait for the disk."""
        ...

    def is_cached(self, position: int, length: int) -> bool:
        """True if the range is (very likely) in memory, so that sendfile does not stall the loop."""
        ...

    def fileno(self) -> int | None:
        """Descriptor for sendfile; None if the file has none."""
        ...


@final
@dataclass(frozen=True, slots=True)
class LogSlice:
    file: SliceFile
    position: int
    length: int

    def __len__(self) -> int:
        return self.length

    def after(self, count: int) -> LogSlice:
        """The slice without its first `count` bytes."""
        return LogSlice(self.file, self.position + count, self.length - count)

    def read(self) -> bytes:
        """Read the bytes of the slice. May wait for the disk."""
        return self.file.pread(self.position, self.length) if self.length else b""


class _NoFile:
    """The file of an empty slice."""

    def pread(self, position: int, length: int) -> bytes:
        return b""

    def pread_cached(self, position: int, length: int) -> bytes | None:
        return b""

    def is_cached(self, position: int, length: int) -> bool:
        return True

    def fileno(self) -> int | None:
        return None


EMPTY_SLICE = LogSlice(_NoFile(), 0, 0)
