"""Rebuilding a log's leader epochs, producers and transactions from the newest readable snapshot and the batches after
it.

Used at start and after a truncation; waits for the disk. Damage is reported in `problems` and does not fail the replay,
because it may be in batches that no consumer reads.
"""

from __future__ import annotations

from penstock.errors import CorruptLog, StorageError
from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import BatchHeader
from penstock.records.control import read_marker
from penstock.storage.aborted_transactions import AbortedTransactions
from penstock.storage.batch_scan import read_batch
from penstock.storage.disk import Disk
from penstock.storage.index import FIRST_ENTRY, IndexEntry
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.log_config import LogConfig
from penstock.storage.producer_state import ProducerStates
from penstock.storage.reading import floor_segment
from penstock.storage.segment import Segment
from penstock.storage.snapshot import Snapshot, snapshot_name


class Replay:
    """State that is being rebuilt. `apply` must be called for every batch in order."""

    def __init__(self, config: LogConfig, now_ms: int) -> None:
        self.epochs = LeaderEpochs()
        self.producers = ProducerStates(config.max_producers, config.producer_id_expiration_ms)
        self.problems: list[str] = []
        self.unreadable_snapshots = 0
        """Number of `problems` with snapshots. They are no loss: a killed process may leave an unfinished snapshot."""
        self._now_ms = now_ms

    def apply(self, segment: Segment, position: int, header: BatchHeader) -> None:
        self.epochs.assign(LeaderEpoch(header.leader_epoch), Offset(header.base_offset))
        # The time of the write is unknown. The present time is used, so that no producer expires too early.
        if header.is_control:
            marker = read_marker(read_batch(segment.file, position, header), header)
            if marker is not None:
                self.producers.end_transaction(marker, header.base_offset, self._now_ms)
        elif header.producer_id >= 0:
            self.producers.record(header, header.base_offset, header.max_timestamp, self._now_ms)

    def restore(
        self,
        disk: Disk,
        directory: str,
        snapshots: tuple[Offset, ...],
        segments: tuple[Segment, ...],
        end_offset: Offset,
        *,
        is_compacted: bool,
    ) -> None:
        """Rebuild the state at `end_offset`, which is a batch boundary of `segments` or the log end."""
        start_offset = self._load_snapshot(disk, directory, snapshots, end_offset)
        if is_compacted:
            self._forget_compacted(segments)
        if start_offset == end_offset:
            return
        for place, segment in enumerate(segments):
            last = place + 1 == len(segments)
            if segment.base_offset < end_offset and (last or segments[place + 1].base_offset > start_offset):
                self.replay_segment(segment, start_offset, end_offset)

    def _load_snapshot(
        self, disk: Disk, directory: str, snapshots: tuple[Offset, ...], end_offset: Offset
    ) -> Offset:
        for offset in sorted(snapshots, reverse=True):
            if offset > end_offset:
                continue
            path = f"{directory}/{snapshot_name(offset)}"
            try:
                snapshot = Snapshot.decode(disk.read(path))
            except (OSError, StorageError) as problem:
                self.problems.append(f"{path}: {problem}")
                self.unreadable_snapshots += 1
                continue
            self.epochs = LeaderEpochs(snapshot.epochs)
            self.producers.restore(snapshot.producers.items(), snapshot.ended, snapshot.aborted)
            return snapshot.offset
        return Offset(0)

    def _forget_compacted(self, segments: tuple[Segment, ...]) -> None:
        """Drop aborted transactions whose markers compaction has removed since the snapshot was written."""
        self.producers.aborted = AbortedTransactions(
            aborted for aborted in self.producers.aborted if _has_batch(segments, aborted.last_offset)
        )

    def replay_segment(self, segment: Segment, start_offset: Offset, end_offset: Offset) -> None:
        try:
            start = FIRST_ENTRY
            if start_offset > segment.base_offset:
                position, header = segment.locate(start_offset, segment.size, wait=True)
                if header is None:
                    return
                start = IndexEntry(header.base_offset - segment.base_offset, position, -1)
            for position, header in segment.walk(segment.size, start, wait=True):
                if header.base_offset >= end_offset:
                    return
                self.apply(segment, position, header)
        except CorruptLog as problem:
            self.problems.append(f"{segment.log_file.path}: {problem}")


def _has_batch(segments: tuple[Segment, ...], offset: int) -> bool:
    place = floor_segment(segments, offset)
    if place < 0:
        return False
    try:
        _, header = segments[place].locate(offset, segments[place].size, wait=True)
    except CorruptLog:
        return True
    return header is not None and header.base_offset == offset
