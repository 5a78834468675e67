"""Repair of a damaged range of a log in place, with the bytes of another replica.

Replicas of a partition hold the same batches, so the bytes of another replica are written over the damaged bytes.
Nothing else in the log is changed: after a failed repair or a crash the range is still damaged. `locate` and
`Patch.work` wait for the disk; they run within a job of the log (`LogJobs.begin_patch`), so that no other job changes
its files.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import CorruptLog, InvalidBatch, StorageError
from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import HEADER_SIZE, crc_matches, read_header
from penstock.records.iteration import read_batches
from penstock.storage.batch_scan import read_range
from penstock.storage.damage import DamagedRange
from penstock.storage.disk import Disk
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.log import Log
from penstock.storage.reading import floor_segment
from penstock.storage.scrub import Damaged, Extent
from penstock.storage.segment import Segment


def extent_of(log: Log, damaged: DamagedRange) -> Extent | None:
    """The segment that contains the whole range; None if no segment does. Loop thread."""
    segments = log.segments
    place = floor_segment(segments, damaged.base_offset)
    if place < 0:
        return None
    segment, is_last = segments[place], place + 1 == len(segments)
    end_offset = log.log_end_offset if is_last else Offset(segments[place + 1].base_offset)
    return Extent(segment, segment.size, end_offset) if damaged.end_offset <= end_offset else None


def locate(extent: Extent, damaged: DamagedRange) -> Damaged:
    """Find the file positions of a damaged range; CorruptLog if its offsets are not batch boundaries."""
    segment, start, end = extent.segment, 0, extent.size
    if damaged.base_offset > segment.base_offset:
        position, header = segment.locate(damaged.base_offset - 1, extent.size, wait=True)
        if header is None or header.next_offset > damaged.base_offset:
            raise CorruptLog(f"no batch ends at {damaged.base_offset}")
        start = position + header.size
    if damaged.end_offset < extent.end_offset:
        end, header = segment.locate(damaged.end_offset, extent.size, wait=True)
        if end <= start:
            # The header of the damaged batch claims the end offset: the next batch begins after the damaged batch.
            end = start + read_header(read_range(segment.file, start, HEADER_SIZE, wait=True)).size
            header = segment.header_at(end, wait=True)
        if header is None or header.base_offset != damaged.end_offset:
            raise CorruptLog(f"no batch begins at {damaged.end_offset}")
    return Damaged(damaged, segment, start, end)


def check_copy(
    content: memoryview, damaged: DamagedRange, epochs: LeaderEpochs, *, is_sparse: bool, is_in_sync: bool
) -> None:
    """StorageError unless `content` is exactly the batches of the range, valid and with the leader epochs of this log.

    `is_sparse` is True if the log was compacted, so that batches may have gaps between them. `is_in_sync` is True if
    the copy is from an in-sync replica: it is then accepted where this log does not know the leader epoch, because the
    range is committed.
    """
    offset, size = damaged.base_offset, 0
    try:
        for header, batch in read_batches(content):
            if not crc_matches(batch, header):
                raise StorageError(f"the other replica is damaged at offset {header.base_offset} too")
            if header.base_offset < offset or (header.base_offset > offset and not is_sparse):
                raise StorageError(f"the other replica has offset {header.base_offset} instead of {offset}")
            epoch, base_offset = LeaderEpoch(header.leader_epoch), Offset(header.base_offset)
            is_known = epochs.epoch_at(base_offset) == epoch
            if not is_known and not (is_in_sync and epochs.may_have_written(epoch, base_offset)):
                raise StorageError(
                    f"the other replica has another leader epoch at offset {header.base_offset}"
                )
            offset, size = header.next_offset, size + header.size
    except InvalidBatch as error:
        raise StorageError(f"the other replica is damaged after offset {offset} too") from error
    if size != len(content) or offset > damaged.end_offset or (offset < damaged.end_offset and not is_sparse):
        raise StorageError(
            f"the batches of the other replica end at offset {offset}, but the damage ends at {damaged.end_offset}"
        )


@dataclass(frozen=True, slots=True)
class Patch:
    """Bytes to be written over damaged bytes of the same length."""

    disk: Disk
    target: Damaged
    content: memoryview

    @property
    def segment(self) -> Segment:
        return self.target.segment

    def work(self) -> None:
        """Write, sync and read back. After an OSError the content of the range is undefined."""
        file = self.disk.open(self.segment.log_file.path)
        try:
            file.pwrite(self.target.position, (self.content,))
            file.sync()
            if file.pread(self.target.position, len(self.content)) != self.content:
                raise OSError("the disk returned other bytes than were written")
        finally:
            file.close()
