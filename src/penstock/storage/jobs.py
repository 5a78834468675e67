"""File work of a log that runs in a thread pool: syncing, checkpointing, deleting files.

A job is created on the loop thread with all data that it needs; its `work` runs in a thread pool and accesses only
files; then the log finishes it on the loop thread. A failed sync is final: it is unknown which pages were lost, so a
later successful sync of the same bytes must not lead to an acknowledgement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.model import Offset
from penstock.storage.checkpoints import RecoveryMark
from penstock.storage.closed_segments import ClosedSegments, describe, prepare_list, publish_list
from penstock.storage.disk import SYNC_ALL_ABOVE, Disk, File
from penstock.storage.index import ENTRY_SIZE, IndexEntry, encode_entries
from penstock.storage.segment import Segment
from penstock.storage.snapshot import KEPT_SNAPSHOTS, Snapshot, snapshot_name


@dataclass(frozen=True, slots=True)
class FlushJob:
    """Make all bytes appended so far durable, and the names of new files."""

    disk: Disk
    generation: int
    end_offset: Offset
    segments: tuple[tuple[Segment, int], ...]
    """Segments with unsynced bytes, and their sizes."""
    files: tuple[File, ...]
    new_directories: tuple[str, ...]
    """Directories with names that are not durable yet."""
    failures: list[OSError]
    """Errors of failed syncs, shared by all jobs of the log. A sync after a failed one finds clean pages and succeeds,
    perhaps before the loop thread has handled the failure.
    """

    def work(self) -> None:
        try:
            for file in self.files:
                file.sync()
            for directory in self.new_directories:
                self.disk.sync_dir(directory)
        except OSError as error:
            self.failures.append(error)
            raise


def sync_together(disk: Disk, jobs: Sequence[FlushJob]) -> bool:
    """Do the work of many flushes with one sync; False if the system has no such call."""
    try:
        return disk.sync_all()
    except OSError as error:
        for job in jobs:  # the file that failed is not known
            job.failures.append(error)
        raise


@dataclass(slots=True)
class IndexWrite:
    """Entries to be appended to an index file; the whole index if it was rebuilt."""

    segment: Segment
    repaired: bytes
    entries: list[IndexEntry]
    stored: int
    """Number of entries in the file before `entries`; includes the entries of `repaired`."""

    def write(self, disk: Disk) -> File:
        content = self.repaired + encode_entries(self.segment.base_offset, self.entries)
        position = self.stored * ENTRY_SIZE - len(self.repaired)
        file = disk.open(self.segment.index.file.path, create=True)
        file.truncate(position)
        file.pwrite(position, (content,))
        return file


@dataclass(slots=True)
class CheckpointJob:
    """Move the recovery point to the log end: log, indexes and snapshot become durable up to there."""

    disk: Disk
    directory: str
    flush: FlushJob
    index_writes: tuple[IndexWrite, ...]
    snapshot: Snapshot | None
    """Snapshot to write; None if there is a snapshot at this offset already."""
    old_snapshots: tuple[Offset, ...]
    mark: RecoveryMark
    closed: ClosedSegments
    """The list of closed segments; `write` adds `newly_closed`."""
    newly_closed: tuple[tuple[Segment, int], ...]
    """Closed segments that are not in the list yet, with their end offsets."""
    syncing: bool = False
    """True during syncs. An error while this is true is final."""
    done: bool = False
    error: OSError | None = None
    _written: list[File] = field(default_factory=list)

    def work(self) -> None:
        self.sync_log()
        self.write()
        self.sync_written()
        self.tidy()

    def attempt(self, step: Callable[[CheckpointJob], None]) -> None:
        if self.error is None:
            try:
                step(self)
            except OSError as error:
                self.error = error

    def sync_log(self) -> None:
        """Sync the log first, so that an index never points past durable bytes."""
        self.syncing = True
        self.flush.work()
        self.syncing = False

    def write(self) -> None:
        """Write indexes, snapshot and list without syncing them. OSError after a failed sync of the log, because
        recovery trusts these files.
        """
        if self.flush.failures:
            raise self.flush.failures[0]
        for index_write in self.index_writes:
            self._written.append(index_write.write(self.disk))
        if self.snapshot is not None:
            file = self.disk.open(f"{self.directory}/{snapshot_name(self.snapshot.offset)}", create=True)
            file.truncate(0)
            file.pwrite(0, (self.snapshot.encode(),))
            self._written.append(file)
        if self.newly_closed:
            entries = [describe(self.disk, segment, end_offset) for segment, end_offset in self.newly_closed]
            self.closed = self.closed.extended(entries)
            self._written.append(prepare_list(self.disk, self.directory, self.closed))

    def sync_written(self) -> None:
        self.syncing = True
        for file in self._written:
            file.sync()
        if self._written:
            self.disk.sync_dir(self.directory)
        self.syncing = False

    def tidy(self) -> None:
        """Put the list of closed segments in place, and remove the oldest snapshot."""
        self._written.clear()
        if self.newly_closed:
            publish_list(self.disk, self.directory)
        self.done = True
        for offset in self.old_snapshots[: 1 - KEPT_SNAPSHOTS]:
            self.disk.remove(f"{self.directory}/{snapshot_name(offset)}")


def work_together(disk: Disk, jobs: Sequence[CheckpointJob]) -> None:
    """Do the work of many checkpoints with few syncs; the `error` of a failed job is set."""
    _sync_checkpoints(disk, jobs, CheckpointJob.sync_log)
    for job in jobs:
        job.attempt(CheckpointJob.write)
    _sync_checkpoints(disk, jobs, CheckpointJob.sync_written)
    for job in jobs:
        job.attempt(CheckpointJob.tidy)


def _sync_checkpoints(
    disk: Disk, jobs: Sequence[CheckpointJob], sync: Callable[[CheckpointJob], None]
) -> None:
    if len(jobs) > SYNC_ALL_ABOVE:
        try:
            if sync_together(disk, [job.flush for job in jobs]):
                return
        except OSError as error:
            for job in jobs:
                job.syncing, job.error = True, error
            return
    for job in jobs:
        job.attempt(sync)


@dataclass(slots=True)
class DeleteJob:
    """Remove the files of segments that are no longer part of the log, oldest first so that a crash leaves no hole."""

    disk: Disk
    directory: str
    segments: tuple[Segment, ...]
    checkpoint: CheckpointJob | None
    """A checkpoint to write first if the recovery point is below the first remaining segment; else None. Without it,
    recovery would conclude that the log has lost its first files.
    """
    keep_list: Callable[[ClosedSegments | None], None]
    """Function that writes the list of closed segments without the removed ones. Its argument is the list that
    `checkpoint` wrote; None without a checkpoint.
    """

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def work(self) -> None:
        if self.checkpoint is not None:
            self.checkpoint.attempt(CheckpointJob.work)
            if self.checkpoint.error is not None:
                raise self.checkpoint.error
        self.keep_list(self.checkpoint.closed if self.checkpoint is not None else None)
        self.disk.sync_dir(self.directory)  # the name of the first remaining segment must be durable first
        for segment in self.segments:
            segment.remove_files(self.disk)
        self.disk.sync_dir(self.directory)
