"""The segment that compaction writes to replace one or more adjacent segments.

The steps on disk, and the state after a crash between them, are described in `stray_files`. Until the log has finished
the swap, readers continue to read the old files, which stay open.
"""

from __future__ import annotations

from typing_extensions import Buffer

from penstock.errors import StorageError
from penstock.records.batch import read_header
from penstock.storage.closed_segments import ClosedSegments, describe_file, prepare_list, publish_list
from penstock.storage.disk import File
from penstock.storage.disk_errors import PASSING_ERRORS
from penstock.storage.file_cache import FileCache
from penstock.storage.index import IndexEntry, encode_entries
from penstock.storage.log import Log
from penstock.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, NO_TIMESTAMP, Segment, segment_name
from penstock.storage.stray_files import CLEANED_SUFFIX, SWAP_SUFFIX


class CleanedSegment:
    """A segment under construction, to which batches are appended in order. All methods wait for the disk; one thread
    at a time.
    """

    def __init__(
        self,
        files: FileCache,
        directory: str,
        replaced: tuple[Segment, ...],
        end_offset: int,
        index_interval_bytes: int,
        log: Log,
    ) -> None:
        self.replaced = replaced
        self.base_offset = replaced[0].base_offset
        self.size = 0
        self.max_timestamp = NO_TIMESTAMP
        self.is_changed = len(replaced) > 1
        """True if the new segment differs from the segments that it replaces."""
        self._files = files
        self._log = log
        self._disk = files.disk
        self._directory = directory
        self._path = f"{directory}/{segment_name(self.base_offset)}"
        self._end_offset = end_offset
        self._index_interval_bytes = index_interval_bytes
        self._indexed_size = 0
        self._entries: list[IndexEntry] = []
        self._file: File | None = None

    def append(self, batch: Buffer) -> None:
        header = read_header(batch)
        if self._file is None:
            self._file = self._create(LOG_SUFFIX)
        if self.size - self._indexed_size >= self._index_interval_bytes:
            relative_offset = header.base_offset - self.base_offset
            self._entries.append(IndexEntry(relative_offset, self.size, self.max_timestamp))
            self._indexed_size = self.size
        self._file.pwrite(self.size, (batch,))
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
        self.size += header.size

    def finish(self) -> None:
        """Complete and sync log and index. The last index entry has the end offset of the replaced segments."""
        log_file = self._file or self._create(LOG_SUFFIX)
        self._entries.append(IndexEntry(self._end_offset - self.base_offset, self.size, self.max_timestamp))
        index_file = self._create(INDEX_SUFFIX)
        index_file.pwrite(0, (encode_entries(self.base_offset, self._entries),))
        log_file.sync()
        index_file.sync()
        self._disk.sync_dir(self._directory)
        log_file.close()
        index_file.close()

    def discard(self) -> None:
        """Remove the unfinished files."""
        self._file = None
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX):
            self._disk.remove(self._path + suffix + CLEANED_SUFFIX)

    def swap(self) -> None:
        """Replace the old segments on disk. After StorageError nothing has changed.

        The list of closed segments is replaced after the point from which recovery would finish the swap, and before
        the new files get their final names.
        """
        closed = self._prepare_list()
        for segment in self.replaced:
            _keep_readable(segment)
        for suffix in (INDEX_SUFFIX, LOG_SUFFIX):
            self._rename(suffix + CLEANED_SUFFIX, suffix + SWAP_SUFFIX)
        publish_list(self._disk, self._directory)
        self._disk.sync_dir(self._directory)
        self._log.closed = closed
        for segment in self.replaced:
            segment.remove_files(self._disk)
        self._disk.sync_dir(self._directory)
        for suffix in (INDEX_SUFFIX, LOG_SUFFIX):
            self._rename(suffix + SWAP_SUFFIX, suffix)

    def _prepare_list(self) -> ClosedSegments:
        path = self._path + LOG_SUFFIX + CLEANED_SUFFIX
        entry = describe_file(self._disk, path, self.base_offset, self._end_offset)
        closed = self._log.closed.extended([entry])
        try:
            prepare_list(self._disk, self._directory, closed).sync()
        except OSError as error:
            if error.errno in PASSING_ERRORS:
                raise StorageError(f"{self._path} cannot be replaced: {error}") from error
            raise
        return closed

    def segment(self) -> Segment:
        """The new segment, for the log to use after the swap."""
        return Segment(
            self._files,
            self._directory,
            self.base_offset,
            size=self.size,
            max_timestamp=self.max_timestamp,
            created_ms=self.replaced[0].created_ms,
            stored_entries=len(self._entries),
        )

    def _create(self, suffix: str) -> File:
        file = self._disk.open(self._path + suffix + CLEANED_SUFFIX, create=True)
        file.truncate(0)
        return file

    def _rename(self, source_suffix: str, target_suffix: str) -> None:
        self._disk.rename(self._path + source_suffix, self._path + target_suffix)
        self._disk.sync_dir(self._directory)


def _keep_readable(segment: Segment) -> None:
    """Keep the files of a segment open for readers, because the swap removes them or gives their names to others."""
    segment.log_file.retire()
    try:
        segment.index.file.retire()
    except FileNotFoundError:
        segment.locate(segment.base_offset, segment.size, wait=True)  # rebuilds the index in memory
