"""A bounded number of file descriptors, shared by thousands of segments.

A `CachedFile` opens when first used and stays open until others need its place; a caller that still holds the `File`
keeps it open. A file with unsynced bytes is pinned by its segment instead: an error while writing it back reaches only
descriptors that were open before. Any thread may read through the cache (every step is one atomic operation on a deque
or an attribute); pins are counted on the loop thread.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from penstock.storage.disk import Disk, File

DEFAULT_MAX_OPEN_FILES = 4096


class FileCache:
    """A cache that closes files in the order they were opened, and spares each used file once (second chance)."""

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
        """True if more files are pinned than may be open."""
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
        if self.retired is not None:  # the path may have been given to another file while we opened it
            return self.retired
        self.file = file
        self._cache.add(self)
        return file

    def retire(self) -> None:
        """Keep the present file, because its path is about to be removed or to name another file."""
        self.retired = self.get()

    def discard(self) -> None:
        """Give up a file that was removed; its space is freed after its last reader is done."""
        self.file = None
        self._cache.remove(self)
