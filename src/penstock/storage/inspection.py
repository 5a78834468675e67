"""Inspection of segment files for `penstock log show` and `penstock log check`.

Reads the files of a broker or a copy of them, and changes nothing; damage is reported and skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.errors import ConfigError, CorruptLog
from penstock.records.batch import BatchHeader, crc_matches
from penstock.storage.batch_scan import find_batch, read_batch, scan_batches
from penstock.storage.disk import Disk, File
from penstock.storage.index import ENTRY_SIZE, FIRST_ENTRY, IndexDamaged, decode_entry
from penstock.storage.segment import INDEX_SUFFIX, LOG_SUFFIX


@dataclass(frozen=True, slots=True)
class SegmentProblem:
    file: str
    position: int
    message: str


@dataclass(frozen=True, slots=True)
class SegmentReport:
    path: str
    base_offset: int
    size_bytes: int
    batches: int
    records: int
    first_offset: int | None
    last_offset: int | None
    max_timestamp: int
    problems: tuple[SegmentProblem, ...]


def describe_segment(disk: Disk, path: str) -> Iterator[tuple[int, BatchHeader | SegmentProblem]]:
    """Every batch with its position, and a problem in place of damaged bytes."""
    base_offset, file = segment_base_offset(path), disk.open(path)
    position, end, min_offset = 0, file.size(), base_offset
    while position < end:
        try:
            for start, header in scan_batches(
                file, position, end, base_offset=base_offset, min_offset=min_offset, wait=True
            ):
                yield start, header
                position, min_offset = start + header.size, header.next_offset
        except CorruptLog as problem:
            yield position, SegmentProblem(path, position, str(problem))
            found = find_batch(file, position, end, base_offset=base_offset, min_offset=min_offset)
            if found is None:
                return
            position, min_offset = found[0], found[1].base_offset


def check_segment(
    disk: Disk, path: str, on_progress: Callable[[int], None] = lambda position: None
) -> SegmentReport:
    """Read the whole segment and its index, and check both."""
    file = disk.open(path)
    problems, indexed = _read_index(disk, path)
    batches, records, max_timestamp = 0, 0, -1
    first: BatchHeader | None = None
    last: BatchHeader | None = None
    for position, found in describe_segment(disk, path):
        on_progress(position)
        if isinstance(found, SegmentProblem):
            problems.append(found)
            indexed.pop(position, None)
            continue
        problems += _check_batch(path, file, position, found, last)
        indexed.pop(position, None)
        indexed.pop(position + found.size, None)
        first, last = first or found, found
        batches, records = batches + 1, records + found.record_count
        max_timestamp = max(max_timestamp, found.max_timestamp)
    problems += indexed.values()
    return SegmentReport(
        path=path,
        base_offset=segment_base_offset(path),
        size_bytes=file.size(),
        batches=batches,
        records=records,
        first_offset=None if first is None else first.base_offset,
        last_offset=None if last is None else last.last_offset,
        max_timestamp=max_timestamp,
        problems=tuple(problems),
    )


def segment_base_offset(path: str) -> int:
    name = path.rpartition("/")[2]
    stem = name.removesuffix(LOG_SUFFIX)
    if stem == name or not (stem.isascii() and stem.isdigit()):
        raise ConfigError(f"{name} is not a segment file; these are called <20 digits>{LOG_SUFFIX}")
    return int(stem)


def _check_batch(
    path: str, file: File, position: int, header: BatchHeader, previous: BatchHeader | None
) -> Iterator[SegmentProblem]:
    if not crc_matches(read_batch(file, position, header), header):
        yield SegmentProblem(path, position, f"the CRC of offset {header.base_offset} does not match")
    if previous is not None and header.leader_epoch < previous.leader_epoch:
        message = f"leader epoch {header.leader_epoch} follows the higher epoch {previous.leader_epoch}"
        yield SegmentProblem(path, position, message)


def _read_index(disk: Disk, log_path: str) -> tuple[list[SegmentProblem], dict[int, SegmentProblem]]:
    """The problems of the index itself, and for each entry, by position, the problem to report if no batch is there.

    A missing index is no problem: it is rebuilt when it is needed.
    """
    path, base_offset = log_path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX, segment_base_offset(log_path)
    problems: list[SegmentProblem] = []
    indexed: dict[int, SegmentProblem] = {}
    content = disk.read(path) if disk.exists(path) else b""
    if len(content) % ENTRY_SIZE:
        problems.append(SegmentProblem(path, len(content), "the last entry is cut short"))
    previous = FIRST_ENTRY
    for place in range(0, len(content) - ENTRY_SIZE + 1, ENTRY_SIZE):
        try:
            entry = decode_entry(base_offset, content, place)
        except IndexDamaged:
            problems.append(SegmentProblem(path, place, "the checksum of the entry does not match"))
            continue
        if any(new < old for new, old in zip(entry, previous, strict=True)):
            problems.append(SegmentProblem(path, place, "the entry is below the one before it"))
        if entry.position > 0:
            indexed[entry.position] = SegmentProblem(path, place, f"no batch is at {entry.position}")
        previous = entry
    return problems, indexed
