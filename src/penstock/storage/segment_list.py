"""The segments of one log in order, with a record of bytes and names that are not durable yet.

Loop thread only, except that any thread may read the tuple `all`, which is replaced and never changed. A segment is
pinned, which keeps its file open, from its first unsynced byte until a flush has covered its last byte.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.model import Offset
from penstock.storage.disk import Disk, File
from penstock.storage.file_cache import FileCache
from penstock.storage.jobs import FlushJob, IndexWrite
from penstock.storage.segment import Segment


class SegmentList:
    __slots__ = (
        "_dirty",
        "_disk",
        "_files",
        "_new_directories",
        "_sync_failures",
        "active",
        "all",
        "directory",
        "generation",
    )

    def __init__(
        self,
        disk: Disk,
        files: FileCache,
        directory: str,
        segments: tuple[Segment, ...],
        new_directories: tuple[str, ...],
    ) -> None:
        self._disk = disk
        self._files = files
        self.directory = directory
        self.all = segments
        """All segments, oldest first; the last is the active one."""
        self.active = segments[-1] if segments else None
        self._dirty: tuple[Segment, ...] = ()
        self._new_directories = new_directories
        self._sync_failures: list[OSError] = []
        self.generation = 0

    @property
    def unsynced_bytes(self) -> int:
        return sum(segment.size - segment.synced_size for segment in self._dirty)

    # --- growing

    def pin(self, segment: Segment) -> File:
        """Open the file of a segment for writing, and keep it open until it is synced."""
        return self._keep_open(segment, segment.log_file.get(create=True))

    def _keep_open(self, segment: Segment, file: File) -> File:
        segment.writer = file
        self._files.pinned += 1
        self._dirty = (*self._dirty, segment)
        return file

    def start(self, base_offset: Offset, now_ms: int, content: memoryview) -> Segment:
        """Add a segment that begins with `content`; after an OSError the list is unchanged."""
        segment = Segment(self._files, self.directory, base_offset, created_ms=now_ms)
        try:
            file = segment.log_file.get(create=True)
            file.truncate(0)  # an earlier attempt may have left bytes
            if content:
                file.pwrite(0, (content,))
        except OSError:
            segment.log_file.discard()
            self._disk.remove(
                segment.log_file.path
            )  # a later start must not find this file between other segments
            raise
        if self.active is not None:
            self.active.close(base_offset)
        self.all = (*self.all, segment)
        self.active = segment
        # Always a new tuple: a running flush may have synced the directory before this name was created.
        others = (directory for directory in self._new_directories if directory != self.directory)
        self._new_directories = (*others, self.directory)
        if content:
            self._keep_open(segment, file)
        return segment

    # --- flushing

    def begin_flush(self, end_offset: Offset) -> FlushJob:
        dirty = self._dirty
        return FlushJob(
            self._disk,
            self.generation,
            end_offset,
            tuple((segment, segment.size) for segment in dirty),
            tuple(segment.writer for segment in dirty if segment.writer is not None),
            self._new_directories,
            self._sync_failures,
        )

    def is_current(self, job: FlushJob) -> bool:
        """True if the log was not truncated since the job began, so that it still has the bytes that the job synced."""
        return job.generation == self.generation

    def finish_flush(self, job: FlushJob) -> None:
        for segment, size in job.segments:
            segment.synced_size = max(segment.synced_size, size)
        for segment in self._dirty:
            if segment.synced_size == segment.size:
                self._unpin(segment)
        self._dirty = tuple(segment for segment in self._dirty if segment.writer is not None)
        if self._new_directories is job.new_directories:
            self._new_directories = ()

    def _unpin(self, segment: Segment) -> None:
        if segment.writer is not None:
            segment.writer = None
            self._files.pinned -= 1

    def index_writes(self) -> tuple[IndexWrite, ...]:
        return tuple(self._index_writes())

    def _index_writes(self) -> Iterator[IndexWrite]:
        for segment in self.all:
            index = segment.index
            entries, repaired = index.unsaved(), index.repaired
            if entries or repaired is not None:
                assert index.stored is not None, "entries were added to an index that was never read"
                yield IndexWrite(segment, repaired or b"", entries, index.stored)

    # --- shrinking

    def drop_first(self, count: int) -> tuple[Segment, ...]:
        dropped, self.all = self.all[:count], self.all[count:]
        self.forget(dropped)
        return dropped

    def drop_last(self, kept: int) -> tuple[Segment, ...]:
        """Keep only the first `kept` segments, and invalidate running flushes. Return the dropped segments."""
        dropped, self.all = self.all[kept:], self.all[:kept]
        self.active = self.all[-1] if self.all else None
        self.generation += 1
        self.forget(dropped)
        return dropped

    def replace(self, replaced: tuple[Segment, ...], segment: Segment) -> None:
        place = self.all.index(replaced[0])
        self.all = (*self.all[:place], segment, *self.all[place + len(replaced) :])
        self.forget(replaced)

    def forget(self, segments: tuple[Segment, ...]) -> None:
        """Unpin segments that are no longer part of the log, and drop their files from the cache."""
        for segment in segments:
            self._unpin(segment)
            segment.log_file.discard()
            segment.index.file.discard()
        self._dirty = tuple(segment for segment in self._dirty if segment.writer is not None)
