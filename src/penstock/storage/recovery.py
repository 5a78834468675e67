"""Loading a log from its directory, after a clean stop or a crash.

Everything below the recovery mark is taken as it is, unread, and so is a segment whose index is complete:
indexes are completed after the log was synced. What lies after is checked batch by batch; at the first that
is not whole and right the log is cut, and what survives is written again and synced, because a failed fsync
may have left pages that look clean and are not on disk. Damage below the mark is never cut, nor below the
high watermark while right batches follow: that had been synced, so it is no torn end; readers are told. Waits
for the disk; one thread per log.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import CorruptLog, TornBatch
from penstock.model import Offset, TopicId, TopicPartition
from penstock.records.batch import BatchHeader, crc_matches
from penstock.storage.checkpoints import LogCheckpoint, RecoveryMark
from penstock.storage.index import IndexDamaged, IndexEntry
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.log_state import LogState, StorageContext
from penstock.storage.reading import floor_segment
from penstock.storage.replay import Replay
from penstock.storage.segment import (
    KEYS_SUFFIX,
    LOG_SUFFIX,
    UNKNOWN_TIMESTAMP,
    UNREACHABLE_OFFSET,
    Segment,
    segment_name,
)
from penstock.storage.snapshot import SNAPSHOT_SUFFIX, snapshot_name
from penstock.storage.stray_files import offsets_with, tidy_directory
from penstock.storage.walking import read_batch

_REWRITE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What loading a log found; nothing after a clean stop."""

    topic_partition: TopicPartition
    checked_bytes: int
    cut_bytes: int
    problems: tuple[str, ...]
    has_lost: bool = False
    """Whether a problem is more than a write that did not come to its end: nobody was told of such a one."""


def load(
    context: StorageContext,
    directory: str,
    topic_partition: TopicPartition,
    topic_id: TopicId,
    config: LogConfig,
    checkpoint: LogCheckpoint | None,
    now_ms: int,
) -> tuple[Log, RecoveryReport]:
    """`checkpoint` is None where it is lost; a log that is too new to have one gets an empty one."""
    recovery = _Recovery(context, directory, config, checkpoint, now_ms)
    log = Log(context, directory, topic_partition, topic_id, config, recovery.run())
    report = RecoveryReport(
        topic_partition,
        recovery.checked_bytes,
        recovery.cut_bytes,
        tuple(recovery.problems),
        len(recovery.problems) > recovery.torn_writes,
    )
    return log, report


class _Recovery:
    def __init__(
        self,
        context: StorageContext,
        directory: str,
        config: LogConfig,
        checkpoint: LogCheckpoint | None,
        now_ms: int,
    ) -> None:
        self._context = context
        self._disk = context.disk
        self._directory = directory
        self._checkpoint = checkpoint
        self._committed = Offset(0) if checkpoint is None else checkpoint.high_watermark
        self._now_ms = now_ms
        self._replay = Replay(config, now_ms)
        self._index_interval_bytes = config.index_interval_bytes
        self.problems = self._replay.problems
        self.checked_bytes = 0
        self.cut_bytes = 0
        self.torn_writes = 0
        self._is_changed = False
        """Whether names in the directory may not be durable."""
        self._is_marked = False
        """Whether the mark was usable."""

    def run(self) -> LogState:
        names = tidy_directory(self._disk, self._directory, self._disk.list(self._directory))
        snapshots = tuple(Offset(offset) for offset in offsets_with(names, SNAPSHOT_SUFFIX))
        found = self._without_deleted(
            [self._closed_segment(base_offset, names) for base_offset in offsets_with(names, LOG_SUFFIX)]
        )
        if found and self._is_unproven(found[0], snapshots):
            self._remove(found, "what was before it never became durable")
            found = []
        if not found:
            return self._without_segments(snapshots)
        start, mark = self._find_start(found)
        segments = [*found[:start], self._from_mark(found[start], mark)]
        self._restore(snapshots, tuple(segments), mark.offset)
        log_end_offset = self._check_tail(segments, found, mark.offset)
        if self._log_start(segments, log_end_offset) > log_end_offset:
            self._remove(segments, "everything in it lies before the log start")
            return self._without_segments(snapshots)
        return self._state(tuple(segments), snapshots, log_end_offset, mark)

    def _without_deleted(self, found: list[Segment]) -> list[Segment]:
        """What lies below the log start was being removed, in any order: there may be holes in it."""
        if self._checkpoint is None:
            return found
        first = max(floor_segment(tuple(found), self._checkpoint.log_start_offset), 0)
        self._remove_files(found[:first])
        return found[first:]

    def _is_unproven(self, first: Segment, snapshots: tuple[Offset, ...]) -> bool:
        """Whether files before the first are missing that nobody deleted: their names were never synced.

        Nothing of the log was durable then, for it becomes durable in order. A deletion leaves a snapshot of
        an offset at or above what stays.
        """
        if self._checkpoint is None:
            return False
        known = max(self._checkpoint.mark.offset, self._checkpoint.log_start_offset, *snapshots, Offset(0))
        return first.base_offset > known

    def _closed_segment(self, base_offset: int, names: list[str]) -> Segment:
        return Segment(
            self._context.files,
            self._directory,
            base_offset,
            size=self._disk.size(f"{self._directory}/{segment_name(base_offset)}{LOG_SUFFIX}"),
            max_timestamp=UNKNOWN_TIMESTAMP,
            stored_entries=None,
            has_keys=segment_name(base_offset) + KEYS_SUFFIX in names,
        )

    def _from_mark(self, found: Segment, mark: RecoveryMark) -> Segment:
        """The segment as it was when the mark was set; its size grows again while the tail is checked."""
        return Segment(
            self._context.files,
            self._directory,
            found.base_offset,
            size=mark.position,
            max_timestamp=mark.max_timestamp,
            created_ms=mark.created_ms,
            stored_entries=mark.index_entries,
            has_keys=found.has_keys,
        )

    def _without_segments(self, snapshots: tuple[Offset, ...]) -> LogState:
        """Nothing is stored, but offsets that were given once are not given again."""
        end_offset = max(snapshots, default=Offset(0))
        if self._checkpoint is not None:
            end_offset = max(end_offset, self._checkpoint.mark.offset, self._checkpoint.log_start_offset)
        end_offset = max(end_offset, self._committed)
        self._restore(snapshots, (), end_offset)
        return self._state((), snapshots, end_offset, RecoveryMark(end_offset, end_offset))

    def _restore(
        self, snapshots: tuple[Offset, ...], segments: tuple[Segment, ...], end_offset: Offset
    ) -> None:
        # Without a checkpoint nobody knows whether it was.
        is_compacted = self._checkpoint is None or self._checkpoint.cleaned_offset > 0
        self._replay.restore(
            self._disk, self._directory, snapshots, segments, end_offset, is_compacted=is_compacted
        )

    # --- where to start

    def _find_start(self, found: list[Segment]) -> tuple[int, RecoveryMark]:
        """The first segment to check, and from where."""
        place = 0
        if self._checkpoint is not None:
            mark = self._checkpoint.mark
            place = max(floor_segment(tuple(found), mark.base_offset), 0)
            self._is_marked = self._bears_out(found[place], mark, last=place == len(found) - 1)
            if self._is_marked:
                return place, mark
        while place < len(found) - 1 and self._end(found[place]) is not None:
            place += 1
        end = self._end(found[place])
        if end is not None and end.relative_offset != UNREACHABLE_OFFSET:
            return place, self._mark_at(found[place], end)
        base_offset = found[place].base_offset
        return place, RecoveryMark(Offset(base_offset), base_offset, created_ms=self._now_ms)

    def _bears_out(self, segment: Segment, mark: RecoveryMark, *, last: bool) -> bool:
        """Whether the file is still the one the mark was set in, and has what it says was synced.

        One that was closed later may have been compacted, by chance to the very size the mark says.
        """
        if segment.base_offset != mark.base_offset:
            return False
        if segment.size < mark.position:
            lost_bytes = mark.position - segment.size
            self.problems.append(f"{segment.log_file.path} has lost {lost_bytes} bytes that had been synced")
            return False
        if last and segment.size == mark.position:
            return True
        end = self._end(segment)
        return end is None or segment.base_offset + end.relative_offset == mark.offset

    @property
    def _may_have_gaps(self) -> bool:
        """Whether offsets may be missing between segments: compaction, below the mark, leaves such gaps."""
        return not self._is_marked and (self._checkpoint is None or self._checkpoint.cleaned_offset > 0)

    @staticmethod
    def _end(segment: Segment) -> IndexEntry | None:
        """Where a segment with a complete index ends: it was checkpointed, and maybe compacted since."""
        try:
            last = segment.index.last(wait=True)
        except IndexDamaged:
            return None
        return last if segment.index.stored and last.position == segment.size else None

    def _mark_at(self, last: Segment, end: IndexEntry) -> RecoveryMark:
        """Every segment is complete: nothing is left to check, and appends go on in the last one."""
        end_offset = Offset(last.base_offset + end.relative_offset)
        if self._checkpoint is not None:
            end_offset = max(end_offset, self._checkpoint.mark.offset)
        return RecoveryMark(
            end_offset,
            last.base_offset,
            end.position,
            end.max_timestamp,
            self._now_ms,
            last.index.stored or 0,
        )

    # --- the tail

    def _check_tail(self, segments: list[Segment], found: list[Segment], end_offset: Offset) -> Offset:
        """Check the last of `segments` take on those found after it up to a cut; the log's end."""
        segment, file_size = segments[-1], found[len(segments) - 1].size
        end_offset = self._check_segment(segment, file_size, end_offset)
        while len(segments) < len(found):
            following = found[len(segments)]
            if segment.size < file_size and following.base_offset != end_offset:
                break
            if following.base_offset < end_offset:
                self._remove([found.pop(len(segments))], f"the segment before it goes up to {end_offset}")
                continue
            if following.base_offset > end_offset and not self._may_have_gaps:
                break
            # Nothing is missing before the next segment, so this is what a failed append left behind.
            self._cut(segment, file_size)
            if self._end(segment) is None:
                segment.close(end_offset)
            segment, file_size, end_offset = self._take_on(following, end_offset)
            segments.append(segment)
        self._cut(segment, file_size)
        self._remove(found[len(segments) :], f"what is before it ends at {end_offset}")
        return end_offset

    def _take_on(self, found: Segment, end_offset: Offset) -> tuple[Segment, int, Offset]:
        """A segment after the first one checked, the size of its file, and where the log ends with it."""
        self._is_changed = True
        end = self._end(found)
        if end is not None and end.relative_offset != UNREACHABLE_OFFSET:
            segment = self._from_mark(found, self._mark_at(found, end))
            end_offset = Offset(found.base_offset + end.relative_offset)
            self._replay.replay_segment(segment, Offset(found.base_offset), end_offset)
            return segment, found.size, end_offset
        segment = self._from_mark(found, RecoveryMark(created_ms=self._now_ms))
        end_offset = max(end_offset, Offset(found.base_offset))
        return segment, found.size, self._check_segment(segment, found.size, end_offset)

    def _check_segment(self, segment: Segment, file_size: int, next_offset: Offset) -> Offset:
        """Take over every right batch from the segment's size on; then write all of them again and sync."""
        start = segment.size
        if file_size == start:
            return next_offset
        if not segment.index.stored:
            segment.trim_index(self._disk)
        while segment.size < file_size:
            here = IndexEntry(next_offset - segment.base_offset, segment.size, segment.max_timestamp)
            try:
                for position, header in segment.walk(file_size, here, wait=True):
                    self._check_batch(segment, position, header)
                    self._accept(segment, position, header)
                    next_offset = header.next_offset
            except CorruptLog as problem:
                here = IndexEntry(next_offset - segment.base_offset, segment.size, segment.max_timestamp)
                behind = segment.after_damage(here, file_size) if next_offset < self._committed else None
                if behind is None:
                    self.problems.append(f"{segment.log_file.path} is cut at {segment.size}: {problem}")
                    self.torn_writes += isinstance(problem, TornBatch) and next_offset >= self._committed
                    break
                self.problems.append(f"{segment.log_file.path} is damaged at {segment.size}: {problem}")
                self._step_over(segment, here, behind)
                next_offset = Offset(segment.base_offset + behind.relative_offset)
        self._write_again(segment, start)
        return next_offset

    @staticmethod
    def _step_over(segment: Segment, damage: IndexEntry, behind: IndexEntry) -> None:
        """Keep damaged bytes as they are; the index has both sides of them, as one that is made again has."""
        segment.index.add(*damage)
        segment.index.add(*behind)
        segment.size = segment.synced_size = segment.indexed_size = behind.position

    def _check_batch(self, segment: Segment, position: int, header: BatchHeader) -> None:
        if header.leader_epoch < self._replay.epochs.latest and header.base_offset >= self._committed:
            raise CorruptLog(f"leader epoch {header.leader_epoch} comes after {self._replay.epochs.latest}")
        if not crc_matches(read_batch(segment.file, position, header), header):
            raise CorruptLog(f"the CRC of the batch at {position} does not match")

    def _accept(self, segment: Segment, position: int, header: BatchHeader) -> None:
        if position == 0 and 0 <= header.max_timestamp < segment.created_ms:
            segment.created_ms = header.max_timestamp
        if position - segment.indexed_size >= self._index_interval_bytes:
            segment.index.add(header.base_offset - segment.base_offset, position, segment.max_timestamp)
            segment.indexed_size = position
        segment.max_timestamp = max(segment.max_timestamp, header.max_timestamp)
        segment.size = segment.synced_size = position + header.size
        self._replay.apply(segment, position, header)

    def _write_again(self, segment: Segment, start: int) -> None:
        file = segment.file
        for position in range(start, segment.size, _REWRITE_BYTES):
            content = file.pread(position, min(_REWRITE_BYTES, segment.size - position))
            file.pwrite(position, (content,))
        file.sync()
        self.checked_bytes += segment.size - start
        self._is_changed = True

    def _cut(self, segment: Segment, file_size: int) -> None:
        if segment.size < file_size:
            self.cut_bytes += file_size - segment.size
            segment.trim_index(self._disk)
            segment.file.truncate(segment.size)
            segment.file.sync()

    def _remove(self, segments: list[Segment], why: str) -> None:
        for segment in segments:
            self.problems.append(f"{segment.log_file.path} is removed: {why}")
            self.cut_bytes += segment.size
        self._remove_files(segments)

    def _remove_files(self, segments: list[Segment]) -> None:
        """Newest first, so that a crash in between leaves no hole."""
        self._is_changed = self._is_changed or bool(segments)
        for segment in reversed(segments):
            segment.remove_files(self._disk)
            segment.index.file.discard()
            segment.log_file.discard()

    # --- the result

    def _is_name_durable(self, last: Segment, mark: RecoveryMark) -> bool:
        """A checkpoint syncs the names of the segments that have bytes; a later one may have just been made."""
        return self._is_marked and mark.position > 0 and last.base_offset == mark.base_offset

    def _log_start(self, segments: list[Segment], log_end_offset: Offset) -> Offset:
        first = Offset(segments[0].base_offset) if segments else log_end_offset
        return first if self._checkpoint is None else max(first, self._checkpoint.log_start_offset)

    def _state(
        self,
        segments: tuple[Segment, ...],
        snapshots: tuple[Offset, ...],
        log_end_offset: Offset,
        mark: RecoveryMark,
    ) -> LogState:
        for offset in snapshots:
            if offset > log_end_offset:
                self._disk.remove(f"{self._directory}/{snapshot_name(offset)}")
                self._is_changed = True
        if self._is_changed or (segments and not self._is_name_durable(segments[-1], mark)):
            self._disk.sync_dir(self._directory)
        log_start_offset = self._log_start(list(segments), log_end_offset)
        epochs, producers = self._replay.epochs, self._replay.producers
        producers.aborted = producers.aborted.starting_at(log_start_offset)
        epochs.truncate_from_end(log_end_offset)
        epochs.truncate_from_start(log_start_offset)
        checkpoint = self._checkpoint
        return LogState(
            segments=segments,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            high_watermark=min(checkpoint.high_watermark, log_end_offset) if checkpoint else Offset(0),
            cleaned_offset=min(checkpoint.cleaned_offset, log_end_offset) if checkpoint else Offset(0),
            mark=mark,
            epochs=epochs,
            producers=producers,
            snapshots=tuple(offset for offset in snapshots if offset <= log_end_offset),
        )
