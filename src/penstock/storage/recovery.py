"""Loading a log from its directory, after a clean stop or a crash.

Everything below the recovery mark is taken as it is, unread, after its files were compared with the list of closed
segments; so is a segment whose index is complete: indexes are completed after the log was synced. What lies after is
checked batch by batch. Bytes that were synced, and within one boot all bytes, are never cut while right batches follow,
nor are segments behind a hole: missing records become damage of the log, and what was found stays. After a power loss
the unsynced end of the log is cut at the first batch that is not whole and right, and what survives is written again
and synced, because a failed fsync may have left pages that look clean and are not on disk. Waits for the disk; one
thread per log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from penstock.errors import CorruptLog, StorageError, TornBatch
from penstock.model import Offset, TopicId, TopicPartition
from penstock.records.batch import BatchHeader, crc_matches
from penstock.storage.checkpoints import LogCheckpoint, RecoveryMark
from penstock.storage.closed_check import LOST_REASON, ClosedCheck
from penstock.storage.closed_segments import (
    CLOSED_SEGMENTS_FILE,
    LOST,
    NO_RECORDS,
    ClosedSegment,
    ClosedSegments,
    describe,
    read_list,
)
from penstock.storage.damage import Damage, DamagedRange, clip_damage, merge_damage
from penstock.storage.disk import FileStatus
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
from penstock.storage.stray_files import offsets_with, pending_swaps, tidy_directory
from penstock.storage.walking import read_batch

_REWRITE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What loading a log found; nothing after a clean stop."""

    topic_partition: TopicPartition
    checked_bytes: int
    cut_bytes: int
    problems: tuple[str, ...]
    damage: Damage = ()
    has_lost: bool = False
    """Whether records are missing that had been on the disk. A write that the end of the process cut short is no
    loss, nor is what a power loss took of unsynced records: nobody was told of these."""


def load(
    context: StorageContext,
    directory: str,
    topic_partition: TopicPartition,
    topic_id: TopicId,
    config: LogConfig,
    checkpoint: LogCheckpoint | None,
    now_ms: int,
    *,
    is_same_boot: bool = False,
    on_loss: Callable[[], None] = lambda: None,
) -> tuple[Log, RecoveryReport]:
    """`checkpoint` is None where it is lost; a log that is too new to have one gets an empty one.

    In the same boot every byte that a process wrote is still there: what is missing was not lost with the power.
    `on_loss` is called before anything is removed that counts as a loss.
    """
    recovery = _Recovery(context, directory, config, checkpoint, now_ms, is_same_boot, on_loss)
    state = recovery.run()
    log = Log(context, directory, topic_partition, topic_id, config, state)
    report = RecoveryReport(
        topic_partition,
        recovery.checked_bytes,
        recovery.cut_bytes,
        tuple(recovery.problems),
        state.damage,
        recovery.has_lost,
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
        is_same_boot: bool,
        on_loss: Callable[[], None],
    ) -> None:
        self._context = context
        self._is_same_boot = is_same_boot
        self._on_loss = on_loss
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
        self._torn_writes = 0
        self._closed = ClosedSegments()
        self._listed = self._closed
        """The list as it is on the disk."""
        self._is_listed = False
        """Whether the list of closed segments can be read."""
        self._is_old = False
        """Whether an earlier version wrote the log, which had no list and named segments of followers differently."""
        self._damage: list[DamagedRange] = []
        self._missing: list[DamagedRange] = []
        """Damage without bytes, which only the list can tell the next start."""
        self._is_changed = False
        """Whether names in the directory may not be durable."""
        self._is_marked = False
        """Whether the mark was usable."""

    @property
    def has_lost(self) -> bool:
        return bool(self._damage) or (self._is_same_boot and len(self.problems) > self._torn_writes)

    def run(self) -> LogState:
        names = self._disk.list(self._directory)
        swaps = pending_swaps(self._disk, self._directory, names)
        names = tidy_directory(self._disk, self._directory, names)
        self._read_list(names, swaps)
        snapshots = tuple(Offset(offset) for offset in offsets_with(names, SNAPSHOT_SUFFIX))
        found = self._check_closed(
            self._without_deleted(
                [self._find(base_offset, names) for base_offset in offsets_with(names, LOG_SUFFIX)]
            )
        )
        if found and self._is_unproven(found[0], snapshots):
            self._remove(found, "what was before it never became durable")
            found = []
        if not found:
            return self._without_segments(snapshots)
        start, mark = self._find_start(found)
        self._check_chain(found[: start + 1])
        segments = [*found[:start], self._from_mark(found[start], mark)]
        self._restore(snapshots, tuple(segments), mark.offset)
        log_end_offset = self._check_tail(segments, found, mark.offset)
        if self._log_start(segments, log_end_offset) > log_end_offset:
            self._remove(segments, "everything in it lies before the log start")
            return self._without_segments(snapshots)
        return self._state(tuple(segments), snapshots, log_end_offset, mark)

    # --- the list of closed segments

    def _read_list(self, names: list[str], swaps: list[tuple[int, int]]) -> None:
        self._is_old = CLOSED_SEGMENTS_FILE not in names
        if self._is_old:
            return
        try:
            self._closed = self._listed = read_list(self._disk, self._directory)
            self._is_listed = True
        except StorageError as problem:
            self.problems.append(f"{self._directory}: {problem}")
        for swap in swaps:
            self._closed = self._closed.without(*swap)

    @property
    def _list_end(self) -> Offset:
        return self._closed.end_offset if self._is_listed else Offset(0)

    @property
    def _kept_to(self) -> Offset:
        """Everything below was synced. The high watermark is checkpointed up to what is flushed."""
        mark_offset = Offset(0) if self._checkpoint is None else self._checkpoint.mark.offset
        return max(mark_offset, self._list_end, self._committed if self._is_listed else Offset(0))

    def _check_closed(self, found: list[tuple[Segment, FileStatus]]) -> list[Segment]:
        log_start_offset = Offset(0) if self._checkpoint is None else self._checkpoint.log_start_offset
        check = ClosedCheck(self._disk, self._closed, log_start_offset)
        segments = check.run(found)
        self._is_changed = self._is_changed or len(segments) < len(found)
        self._closed = check.closed
        self._damage += check.damage
        return segments

    def _check_chain(self, found: list[Segment]) -> None:
        """Between the listed segments and the next one that was found there must be no hole."""
        following = next((each for each in found if each.base_offset >= self._list_end), None)
        if following is None or not self._is_listed:
            return
        if not self._closed.entries and found[0].base_offset < self._list_end:
            return
        self._miss(self._list_end, Offset(following.base_offset))

    def _miss(self, base_offset: Offset, end_offset: Offset) -> None:
        """Records between two offsets were stored and are not there."""
        if base_offset < end_offset:
            self._missing.append(DamagedRange(base_offset, end_offset, LOST_REASON))
            self._damage.append(self._missing[-1])

    # --- what is there

    def _without_deleted(self, found: list[tuple[Segment, FileStatus]]) -> list[tuple[Segment, FileStatus]]:
        """What lies below the log start was being removed, in any order: there may be holes in it."""
        if self._checkpoint is None:
            return found
        segments = tuple(segment for segment, _ in found)
        first = max(floor_segment(segments, self._checkpoint.log_start_offset), 0)
        self._remove_files(list(segments[:first]))
        return found[first:]

    def _is_unproven(self, first: Segment, snapshots: tuple[Offset, ...]) -> bool:
        """Whether files before the first are missing because a power loss took their names.

        Nothing of the log was durable then, for it becomes durable in order. A deletion leaves a snapshot of
        an offset at or above what stays. Without a power loss the log is whole, or the files were removed by somebody
        else. An earlier version named the first segment of a follower after its first batch, which compaction may have
        left above the log start: after a power loss nobody knows whether such a log is whole.
        """
        if self._checkpoint is None:
            return False
        known = max(
            self._checkpoint.mark.offset, self._checkpoint.log_start_offset, *snapshots, self._list_end
        )
        if first.base_offset <= known or (self._is_same_boot and (self._is_old or self._is_listed)):
            return False
        if self._is_old or self._is_same_boot:
            self._miss(known, Offset(first.base_offset))
            return False
        return True

    def _find(self, base_offset: int, names: list[str]) -> tuple[Segment, FileStatus]:
        status = self._disk.status(f"{self._directory}/{segment_name(base_offset)}{LOG_SUFFIX}")
        segment = Segment(
            self._context.files,
            self._directory,
            base_offset,
            size=status.size,
            max_timestamp=UNKNOWN_TIMESTAMP,
            stored_entries=None,
            has_keys=segment_name(base_offset) + KEYS_SUFFIX in names,
        )
        return segment, status

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
        end_offset = max(end_offset, self._committed, self._list_end)
        if self._is_listed:
            self._miss(max(self._list_end, self._log_start([], Offset(0))), end_offset)
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
        """Whether offsets may be missing between segments: compaction, below the mark, and followers of a compacted log
        left such gaps in earlier versions. Where there is a list, every segment ends where the next one begins."""
        if self._is_listed:
            return False
        return self._is_same_boot or (
            not self._is_marked and (self._checkpoint is None or self._checkpoint.cleaned_offset > 0)
        )

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
        if self._checkpoint is not None and not self._is_listed:
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
        """Check the last of `segments` and take on those found after it up to a cut; the log's end."""
        segment, file_size = segments[-1], found[len(segments) - 1].size
        end_offset = self._listed_end(segment, self._check_segment(segment, file_size, end_offset))
        while len(segments) < len(found):
            following = found[len(segments)]
            is_torn = segment.size < file_size
            if following.base_offset < end_offset and not is_torn:
                self._remove([found.pop(len(segments))], f"the segment before it goes up to {end_offset}")
                continue
            if self._had_between(end_offset, following.base_offset, is_torn=is_torn):
                self._miss(end_offset, Offset(following.base_offset))
            elif following.base_offset == end_offset:
                self._cut(segment, file_size)  # this is what a failed append left behind
            elif is_torn or not self._may_have_gaps:
                break
            if self._end(segment) is None:
                segment.close(end_offset)
            segment, file_size, end_offset = self._take_on(following, end_offset)
            segments.append(segment)
        kept_to = self._kept_to
        if end_offset >= kept_to:
            self._cut(segment, file_size)
        self._remove(found[len(segments) :], f"what is before it ends at {end_offset}")
        if end_offset < kept_to:
            self._miss(end_offset, kept_to)
            segments.append(self._start_segment(segment, end_offset, kept_to))
        return max(end_offset, kept_to)

    def _had_between(self, end_offset: Offset, next_offset: int, *, is_torn: bool) -> bool:
        """Whether records were stored between what was found and the next segment."""
        if next_offset <= end_offset:
            return False
        if self._is_same_boot:
            return is_torn or not self._may_have_gaps
        return next_offset <= self._kept_to and not self._may_have_gaps

    def _start_segment(self, before: Segment, end_offset: Offset, base_offset: Offset) -> Segment:
        """An empty segment behind lost records, whose offsets are not given out again."""
        if self._end(before) is None:
            before.close(end_offset)
        segment = Segment(self._context.files, self._directory, base_offset, created_ms=self._now_ms)
        self._disk.open(segment.log_file.path, create=True)
        self._is_changed = True
        return segment

    def _take_on(self, found: Segment, end_offset: Offset) -> tuple[Segment, int, Offset]:
        """A segment after the first one checked, the size of its file, and where the log ends with it."""
        self._is_changed = True
        end = self._end(found)
        if end is not None and end.relative_offset != UNREACHABLE_OFFSET:
            segment = self._from_mark(found, self._mark_at(found, end))
            end_offset = Offset(found.base_offset + end.relative_offset)
            self._replay.replay_segment(segment, Offset(found.base_offset), end_offset)
            return segment, found.size, self._listed_end(segment, end_offset)
        segment = self._from_mark(found, RecoveryMark(created_ms=self._now_ms))
        end_offset = max(end_offset, Offset(found.base_offset))
        end_offset = self._check_segment(segment, found.size, end_offset)
        return segment, found.size, self._listed_end(segment, end_offset)

    def _listed_end(self, segment: Segment, end_offset: Offset) -> Offset:
        """Where a closed segment ends by the list: compaction may have removed its last records."""
        for entry in reversed(self._closed.entries):
            if entry.base_offset <= segment.base_offset:
                is_whole = entry.base_offset == segment.base_offset and entry.size == segment.size
                return max(end_offset, Offset(entry.end_offset)) if is_whole else end_offset
        return end_offset

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
                behind = (
                    segment.after_damage(here, file_size) if self._was_whole(problem, next_offset) else None
                )
                if behind is None:
                    self.problems.append(f"{segment.log_file.path} ends at {segment.size}: {problem}")
                    self._torn_writes += isinstance(problem, TornBatch) and next_offset >= self._committed
                    break
                self.problems.append(f"{segment.log_file.path} is damaged at {segment.size}: {problem}")
                self._step_over(segment, here, behind)
                behind_offset = Offset(segment.base_offset + behind.relative_offset)
                self._damage.append(DamagedRange(next_offset, behind_offset, str(problem)))
                next_offset = behind_offset
        self._write_again(segment, start)
        return next_offset

    def _was_whole(self, problem: CorruptLog, offset: Offset) -> bool:
        """Whether damage at an offset is more than the torn end of what was not synced."""
        return offset < self._kept_to or (self._is_same_boot and not isinstance(problem, TornBatch))

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
            self._report_loss()
            self.cut_bytes += file_size - segment.size
            segment.trim_index(self._disk)
            segment.file.truncate(segment.size)
            segment.file.sync()

    def _remove(self, segments: list[Segment], why: str) -> None:
        for segment in segments:
            self.problems.append(f"{segment.log_file.path} is removed: {why}")
            self.cut_bytes += segment.size
        self._report_loss()
        self._remove_files(segments)

    def _report_loss(self) -> None:
        """Before anything is removed: the next start finds no trace of it."""
        if self.has_lost:
            self._on_loss()

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
        """Where the log starts; the offsets from there up to the first segment have no records, or are damaged."""
        known = Offset(0) if self._checkpoint is None else self._checkpoint.log_start_offset
        if self._is_listed:
            return max(known, self._closed.start_offset)
        if segments and self._checkpoint is not None:
            return known
        return max(known, Offset(segments[0].base_offset) if segments else log_end_offset)

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
        closed = self._complete_list(segments, log_start_offset, log_end_offset)
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
            damage=clip_damage(merge_damage(self._damage), log_start_offset, log_end_offset),
            closed=closed,
            is_list_outdated=self._is_old or closed != self._listed,
        )

    def _complete_list(
        self, segments: tuple[Segment, ...], log_start_offset: Offset, log_end_offset: Offset
    ) -> ClosedSegments:
        """The list with the segments that were closed after it was written, and with holes that were found."""
        closed = self._closed
        if not self._is_listed:
            closed = ClosedSegments(log_start_offset)
            if segments and segments[0].base_offset < log_start_offset:
                closed = ClosedSegments(Offset(segments[0].base_offset))
        entries = [
            ClosedSegment(each.base_offset, each.end_offset, LOST)
            for each in clip_damage(
                merge_damage(self._missing), max(closed.end_offset, log_start_offset), log_end_offset
            )
        ]
        lost_from = [entry.base_offset for entry in entries]
        listed = {entry.base_offset for entry in closed.entries}
        for segment, following in pairwise(segments):
            if segment.base_offset not in listed:
                end_offset = min(
                    (offset for offset in lost_from if segment.base_offset <= offset < following.base_offset),
                    default=following.base_offset,
                )
                if end_offset > segment.base_offset:
                    entries.append(describe(self._disk, segment, end_offset))
        first = segments[0].base_offset if segments else log_end_offset
        if not self._is_listed and first > log_start_offset and not lost_from:
            entries.append(ClosedSegment(log_start_offset, first, NO_RECORDS))
        return closed.extended(entries) if entries else closed
