"""The disk, as a seam: every file Penstock touches is reached through a `Disk`.

Paths are relative to the data directory, with forward slashes. Writes land in the operating system's cache;
only `File.sync`, `Disk.sync_all`, `Disk.sync_dir` and `Disk.replace` make anything durable, and a name (created,
renamed or removed) is durable only after `sync_dir` of its directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from typing_extensions import Buffer


class File(Protocol):
    """An open file. Closed by `close` or when the last reference goes."""

    def size(self) -> int: ...

    def pread(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file. May wait for the disk."""
        ...

    def pread_cached(self, position: int, length: int) -> bytes | None:
        """As pread, or None where it would have to wait for the disk."""
        ...

    def is_cached(self, position: int, length: int) -> bool:
        """Whether the range is (very likely) in memory, so that sendfile will not stall the loop."""
        ...

    def pwrite(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write all of the buffers at `position` or raise OSError; how much was written is then not known."""
        ...

    def truncate(self, length: int) -> None: ...

    def sync(self) -> None:
        """Make all written bytes and the size durable. Waits for the disk."""
        ...

    def start_writeback(self, position: int, length: int) -> None:
        """Begin writing the range to disk without waiting; a hint."""
        ...

    def fileno(self) -> int | None:
        """For sendfile; None where there is no such thing."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError unless `create`."""
        ...

    def read(self, path: str) -> bytes: ...

    def map(self, path: str) -> memoryview:
        """A whole file as read-only memory, loaded lazily where the system can."""
        ...

    def replace(self, path: str, content: bytes) -> None:
        """Durably put a whole file in place: temporary file, sync, rename, sync of the directory."""
        ...

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted; empty where it does not exist."""
        ...

    def size(self, path: str) -> int: ...

    def exists(self, path: str) -> bool: ...

    def make_dir(self, path: str) -> None:
        """Create a directory and its parents; durable after sync_dir of each parent."""
        ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; nothing happens where there is none."""
        ...

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def sync_all(self) -> bool:
        """Make everything written so far on this disk durable at once; False where the system has no such call."""
        ...

    def free_bytes(self) -> int: ...
