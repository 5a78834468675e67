"""A range of record bytes in a segment file, on its way to a reader without passing through memory.

A slice keeps its file open: the segment may be deleted or its descriptor evicted meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from typing_extensions import Buffer

from penstock.storage.disk import File


@final
@dataclass(frozen=True, slots=True)
class LogSlice:
    file: File
    position: int
    length: int

    def __len__(self) -> int:
        return self.length

    def after(self, count: int) -> LogSlice:
        """What is left when the first `count` bytes are done."""
        return LogSlice(self.file, self.position + count, self.length - count)

    def read(self) -> bytes:
        """The bytes themselves. May wait for the disk."""
        return self.file.pread(self.position, self.length) if self.length else b""


class _NoFile:
    """The file of a slice that has nothing in it."""

    def size(self) -> int:
        return 0

    def pread(self, position: int, length: int) -> bytes:
        return b""

    def pread_cached(self, position: int, length: int) -> bytes | None:
        return b""

    def is_cached(self, position: int, length: int) -> bool:
        return True

    def pwrite(self, position: int, buffers: Sequence[Buffer]) -> int:
        raise OSError("an empty slice has no file to write to")

    def truncate(self, length: int) -> None:
        raise OSError("an empty slice has no file to truncate")

    def sync(self) -> None: ...

    def start_writeback(self, position: int, length: int) -> None: ...

    def fileno(self) -> int | None:
        return None

    def close(self) -> None: ...


EMPTY_SLICE = LogSlice(_NoFile(), 0, 0)
