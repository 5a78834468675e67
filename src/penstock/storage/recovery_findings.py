"""Findings of one log's recovery: the state known from before, and missing, damaged or removed records.

All steps of a recovery (`recovery_start`, `recovery_tail`, `recovery_result`) share one instance. A loss is reported
before files are removed because of it, since the next start would not find it again. One thread per log.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import StorageError
from penstock.model import Offset
from penstock.storage.checkpoints import LogCheckpoint
from penstock.storage.closed_check import LOST_REASON
from penstock.storage.closed_segments import (
    CLOSED_SEGMENTS_FILE,
    ClosedSegments,
    describe_file,
    read_list,
    write_list,
)
from penstock.storage.damage import DamagedRange
from penstock.storage.log_state import StorageContext
from penstock.storage.replay import Replay
from penstock.storage.segment import Segment
from penstock.storage.stray_files import PendingSwap

_ZERO = Offset(0)


class Findings:
    def __init__(
        self,
        context: StorageContext,
        directory: str,
        checkpoint: LogCheckpoint | None,
        now_ms: int,
        is_same_boot: bool,
        on_loss: Callable[[], None],
        replay: Replay,
    ) -> None:
        self.disk = context.disk
        self.files = context.files
        self.directory = directory
        self.checkpoint = checkpoint
        """Checkpoint of this log; None if the checkpoint files were lost."""
        self.committed = _ZERO if checkpoint is None else checkpoint.high_watermark
        """High watermark of the checkpoint. Records below it were synced."""
        self.now_ms = now_ms
        self.is_same_boot = is_same_boot
        self.problems = replay.problems
        self.checked_bytes = 0
        self.truncated_bytes = 0
        self.torn_writes = 0
        """Number of `problems` that are no loss: the end of the process left a write unfinished."""
        self.closed = ClosedSegments()
        """List of closed segments, updated with the findings."""
        self.listed = self.closed
        """List of closed segments as it is on the disk."""
        self._swaps: list[PendingSwap] = []
        """Segments that compaction was putting in the place of others when the process ended."""
        self.is_listed = False
        """True if the list of closed segments could be read."""
        self.is_old = False
        """True if a version that had no list wrote the log. It also named the segments of followers differently."""
        self.is_marked = False
        """True if the recovery mark of the checkpoint fits the files."""
        self.damage: list[DamagedRange] = []
        self.missing: list[DamagedRange] = []
        """The ranges of `damage` that have no bytes on the disk. Only the list of closed segments keeps them for the
        next start.
        """
        self.is_replaced = False
        """True if a segment file has another inode than in the list but the same records."""
        self.has_new_names = False
        """True if changes of names in the directory may not be durable yet."""
        self._on_loss = on_loss
        self._replay = replay

    def read_list(self, names: list[str], swaps: list[PendingSwap]) -> None:
        """Read the list of closed segments, and enter the segments of interrupted swaps in place of the replaced ones.

        The list is durable before a swap is finished. Otherwise, if this start is cut short, the next one finds a
        segment file that is shorter than listed, and nothing that shows why.
        """
        self._swaps = swaps
        self.is_old = CLOSED_SEGMENTS_FILE not in names
        if self.is_old:
            return
        try:
            self.closed = self.listed = read_list(self.disk, self.directory)
            self.is_listed = True
        except StorageError as problem:
            self.problems.append(f"{self.directory}: {problem}")
        for swap in swaps:
            self._enter(swap)
        if self.closed != self.listed:
            write_list(self.disk, self.directory, self.closed)
            self.listed = self.closed

    def _enter(self, swap: PendingSwap) -> None:
        replaced = [
            entry for entry in self.closed.entries if swap.base_offset <= entry.base_offset < swap.end_offset
        ]
        if not replaced:
            return
        entry = describe_file(self.disk, swap.path, swap.base_offset, replaced[-1].end_offset)
        if entry.size == swap.size:
            self.closed = self.closed.extended([entry])
        else:  # it is damaged: its records are checked
            self.closed = self.closed.without(swap.base_offset, swap.end_offset)

    def is_compacted(self, segment: Segment) -> bool:
        """True if compaction has written this file as it is now: it was just put in place, or the list has its size."""
        return any(swap.base_offset <= segment.base_offset < swap.end_offset for swap in self._swaps) or any(
            (entry.base_offset, entry.size) == (segment.base_offset, segment.size)
            for entry in self.listed.entries
        )

    @property
    def checkpointed_start(self) -> Offset:
        """Log start offset in the checkpoint; 0 without a checkpoint."""
        return _ZERO if self.checkpoint is None else self.checkpoint.log_start_offset

    @property
    def list_end(self) -> Offset:
        return self.closed.end_offset if self.is_listed else _ZERO

    @property
    def kept_to(self) -> Offset:
        """Offset below which all records are known to have been synced."""
        mark_offset = _ZERO if self.checkpoint is None else self.checkpoint.mark.offset
        return max(mark_offset, self.list_end, self.committed if self.is_listed else _ZERO)

    @property
    def may_have_gaps(self) -> bool:
        """True if a gap in the offsets between two segments may exist without a loss.

        In a log with a list every segment ends where the next one begins. Earlier versions left gaps: compaction left
        them below the recovery mark, and followers of a compacted log anywhere.
        """
        if self.is_listed:
            return False
        return self.is_same_boot or (
            not self.is_marked and (self.checkpoint is None or self.checkpoint.cleaned_offset > 0)
        )

    @property
    def has_lost(self) -> bool:
        """True if records are missing that were on the disk when the last process ended."""
        explained = self.torn_writes + self._replay.unreadable_snapshots
        return bool(self.damage) or (self.is_same_boot and len(self.problems) > explained)

    def log_start(self, segments: list[Segment], log_end_offset: Offset) -> Offset:
        """The log start offset. Offsets between it and the first segment have no records or are damaged."""
        known = self.checkpointed_start
        if self.is_listed:
            return max(known, self.closed.start_offset)
        if segments and self.checkpoint is not None:
            return known
        return max(known, Offset(segments[0].base_offset) if segments else log_end_offset)

    def miss(self, base_offset: Offset, end_offset: Offset) -> None:
        """Record that stored records of [`base_offset`, `end_offset`) are lost, except those below the log start."""
        base_offset = max(base_offset, self.checkpointed_start)
        if base_offset < end_offset:
            self.missing.append(DamagedRange(base_offset, end_offset, LOST_REASON))
            self.damage.append(self.missing[-1])

    def remove(self, segments: list[Segment], why: str) -> None:
        """Remove segments that do not belong to the log, and report it first if records are lost."""
        for segment in segments:
            self.problems.append(f"{segment.log_file.path} is removed: {why}")
            self.truncated_bytes += segment.size
        self.report_loss()
        self.remove_files(segments)

    def report_loss(self) -> None:
        if self.has_lost:
            self._on_loss()

    def remove_files(self, segments: list[Segment]) -> None:
        """Remove the files of segments, the newest first, so that a crash in between leaves no hole."""
        self.has_new_names = self.has_new_names or bool(segments)
        for segment in reversed(segments):
            segment.remove_files(self.disk)
            segment.index.file.discard()
            segment.log_file.discard()
