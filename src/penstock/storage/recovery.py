"""Loading a log from its directory, after a clean stop or a crash.

Records below the recovery mark are accepted without reading them, after the files were compared with the list of closed
segments (`recovery_start`). The tail above the mark is checked batch by batch (`recovery_tail`). The result is the
state that the log starts from (`recovery_result`). Waits for the disk; one thread per log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.model import Offset, TopicId, TopicPartition
from penstock.storage.checkpoints import LogCheckpoint, RecoveryMark
from penstock.storage.damage import Damage
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.log_state import LogState, StorageContext
from penstock.storage.recovery_findings import Findings
from penstock.storage.recovery_result import recovered_state
from penstock.storage.recovery_start import find_segments, find_start, segment_from_mark
from penstock.storage.recovery_tail import TailCheck
from penstock.storage.replay import Replay
from penstock.storage.segment import Segment
from penstock.storage.snapshot import SNAPSHOT_SUFFIX
from penstock.storage.stray_files import offsets_with, pending_swaps, tidy_directory


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """Findings of one log's recovery; empty after a clean stop."""

    topic_partition: TopicPartition
    checked_bytes: int
    cut_bytes: int
    """Number of bytes that were truncated or removed."""
    problems: tuple[str, ...]
    damage: Damage = ()
    has_lost: bool = False
    """True if records are missing that were on the disk. An unfinished write at the end of the process and unsynced
    records after a power loss are no loss, because they were not acknowledged.
    """
    is_replaced: bool = False
    """True if the log was restored from a copy: a closed segment has another inode but the same records."""


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
    """Recover a log. `checkpoint` is None if the checkpoint file was lost; a log without an entry in the file gets an
    empty checkpoint, because it is new.

    `is_same_boot` is True if the machine has not restarted since the log was last written: all written bytes must then
    be there. `on_loss` is called before anything is removed whose removal hides a loss.
    """
    replay = Replay(config, now_ms)
    findings = Findings(context, directory, checkpoint, now_ms, is_same_boot, on_loss, replay)
    state = _Recovery(findings, replay, config).run()
    log = Log(context, directory, topic_partition, topic_id, config, state)
    report = RecoveryReport(
        topic_partition,
        findings.checked_bytes,
        findings.truncated_bytes,
        tuple(findings.problems),
        state.damage,
        findings.has_lost,
        findings.is_replaced,
    )
    return log, report


class _Recovery:
    def __init__(self, findings: Findings, replay: Replay, config: LogConfig) -> None:
        self._findings = findings
        self._replay = replay
        self._config = config

    def run(self) -> LogState:
        findings, disk, directory = self._findings, self._findings.disk, self._findings.directory
        names = disk.list(directory)
        swaps = pending_swaps(disk, directory, names)
        findings.read_list(names, swaps)
        names = tidy_directory(disk, directory, names)
        snapshots = tuple(Offset(offset) for offset in offsets_with(names, SNAPSHOT_SUFFIX))
        found = find_segments(findings, names, snapshots)
        if not found:
            return self._without_segments(snapshots)
        start, mark = find_start(findings, found)
        segments = [*found[:start], segment_from_mark(findings, found[start], mark)]
        self._restore(snapshots, tuple(segments), mark.offset)
        tail = TailCheck(findings, self._replay, self._config.index_interval_bytes)
        log_end_offset = tail.run(segments, found, mark.offset)
        if findings.log_start(segments, log_end_offset) > log_end_offset:
            findings.remove(segments, "all of its offsets are below the log start offset")
            return self._without_segments(snapshots)
        return recovered_state(findings, self._replay, tuple(segments), snapshots, log_end_offset, mark)

    def _without_segments(self, snapshots: tuple[Offset, ...]) -> LogState:
        """The state of a log without records. Its log end is above all offsets that were used before."""
        findings, checkpoint = self._findings, self._findings.checkpoint
        end_offset = max(snapshots, default=Offset(0))
        if checkpoint is not None:
            end_offset = max(end_offset, checkpoint.mark.offset, checkpoint.log_start_offset)
        end_offset = max(end_offset, findings.committed, findings.list_end)
        if findings.is_listed:
            findings.miss(max(findings.list_end, findings.log_start([], Offset(0))), end_offset)
        self._restore(snapshots, (), end_offset)
        mark = RecoveryMark(end_offset, end_offset)
        return recovered_state(findings, self._replay, (), snapshots, end_offset, mark)

    def _restore(
        self, snapshots: tuple[Offset, ...], segments: tuple[Segment, ...], end_offset: Offset
    ) -> None:
        findings = self._findings
        # Without a checkpoint it is not known whether the log was compacted.
        is_compacted = findings.checkpoint is None or findings.checkpoint.cleaned_offset > 0
        self._replay.restore(
            findings.disk, findings.directory, snapshots, segments, end_offset, is_compacted=is_compacted
        )
