"""A bounded number of file descriptors, shared by thousands of segments.

A `CachedFile` is opened at its first use and stays open until the cache evicts it; a caller that still holds the `File`
keeps the descriptor open. A file with unsynced bytes is not in the cache: its segment pins it, because the kernel
reports a write error only to descriptors that were open before. Any thread may read through the cache (every step is
one atomic operation on a deque or an attribute); pins are counted on the loop thread.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from penstock.storage.disk import Disk, File

DEFAULT_MAX_OPEN_FILES = 4096


class FileCache:
    """A cache that evicts files in the order of opening, but gives each file used since then a second chance."""

    def __init__(self, disk: Disk, max_open: int = DEFAULT_MAX_OPEN_FILES) -> None:
        self.disk = disk
        self.max_open = max_open
        self.pinned = 0
        self._queue: deque[CachedFile] = deque()

    @property
    def open_count(self) -> int:
        return len(self._queue) + self.pinned

    @property
    def crowded(self) -> bool:
        """True if the number of pinned files exceeds `max_open`."""
        return self.pinned > self.max_open

    def add(self, opened: CachedFile) -> None:
        self._queue.append(opened)
        while self.open_count > self.max_open:
            try:
                oldest = self._queue.popleft()
            except IndexError:
                return
            if oldest is opened:
                self._queue.append(oldest)
                return
            if oldest.used:
                oldest.used = False
                self._queue.append(oldest)
            else:
                oldest.file = None

    def remove(self, closed: CachedFile) -> None:
        with suppress(ValueError):
            self._queue.remove(closed)


class CachedFile:
    __slots__ = ("_cache", "file", "path", "retired", "used")

    def __init__(self, cache: FileCache, path: str) -> None:
        self._cache = cache
        self.path = path
        self.file: File | None = None
        self.used = False
        self.retired: File | None = None

    def get(self, *, create: bool = False) -> File:
        file = self.file
        if file is not None:
            self.used = True
            return file
        file = self.retired or self._cache.disk.open(self.path, create=create)
        if self.retired is not None:  # the path may have named another file already when it was opened
            return self.retired
        self.file = file
        self._cache.add(self)
        return file

    def retire(self) -> None:
        """Keep the present descriptor for readers, because the path will be removed or given to another file."""
        self.retired = self.get()

    def discard(self) -> None:
        """Drop the descriptor of a file that was removed; the disk space is freed after the last reader is done."""
        self.file = None
        self._cache.remove(self)
