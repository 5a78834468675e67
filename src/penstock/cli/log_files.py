"""Segment files for `penstock log`, in any directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from penstock.cli.failures import ExitCode, Failure
from penstock.cli.times import show_time
from penstock.records.batch import BatchHeader
from penstock.records.compression import Codec
from penstock.storage.disk import RealDisk
from penstock.storage.inspection import SegmentProblem, SegmentReport, check_segment, describe_segment
from penstock.storage.segment import LOG_SUFFIX


@dataclass(frozen=True, slots=True)
class BatchRow:
    """Batch at a position of a segment, or the damage at this position."""

    position: int
    found: BatchHeader | SegmentProblem

    COLUMNS: ClassVar = (
        "position",
        "bytes",
        "offsets",
        "records",
        "codec",
        "newest",
        "epoch",
        "producer",
        "sequence",
    )

    def cells(self) -> tuple[object, ...]:
        if isinstance(self.found, SegmentProblem):
            return (self.position, "-", self.found.message, *("-",) * 6)
        header = self.found
        return (
            self.position,
            header.size,
            f"{header.base_offset} - {header.last_offset}",
            header.record_count,
            _codec(header),
            show_time(header.max_timestamp),
            header.leader_epoch,
            f"{header.producer_id}/{header.producer_epoch}" if header.has_producer else "-",
            _sequence(header),
        )

    def as_json(self) -> dict[str, object]:
        if isinstance(self.found, SegmentProblem):
            return {"position": self.position, "problem": self.found.message}
        header = self.found
        return {
            "position": self.position,
            "bytes": header.size,
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "records": header.record_count,
            "codec": _codec(header),
            "max_timestamp": header.max_timestamp,
            "leader_epoch": header.leader_epoch,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "transactional": header.is_transactional,
            "control": header.is_control,
        }


def _sequence(header: BatchHeader) -> str:
    """Format the producer's sequence numbers of a batch; for a control batch, the type of its marker."""
    if header.is_control:
        return "marker"
    numbers = f"{header.base_sequence} - {header.last_sequence}" if header.base_sequence >= 0 else "-"
    return f"{numbers} (transaction)" if header.is_transactional else numbers


def find_segments(paths: Sequence[Path]) -> list[Path]:
    """Return the given segment files and all segment files below the given directories."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise Failure(
                f"{path} does not exist",
                "Name a segment file or a directory of segments.",
                code=ExitCode.USAGE,
            )
        found += [path] if path.is_file() else sorted(path.rglob(f"*{LOG_SUFFIX}"))
    if not found:
        named = ", ".join(map(str, paths))
        raise Failure(
            f"no segment files (*{LOG_SUFFIX}) in {named}",
            "Name a data directory or a partition directory; a partition without records has no segments.",
        )
    return found


def batch_rows(path: Path) -> Iterator[BatchRow]:
    for position, found in describe_segment(_disk(path), path.name):
        yield BatchRow(position, found)


def check(path: Path, advance: Callable[[int], None]) -> SegmentReport:
    """Check a segment and return the report; `path` is the path shown in it. `advance` is called with the number of
    bytes read.
    """
    done = 0

    def on_progress(position: int) -> None:
        nonlocal done
        advance(position - done)
        done = position

    report = check_segment(_disk(path), path.name, on_progress)
    on_progress(report.size_bytes)
    problems = tuple(replace(problem, file=str(path.parent / problem.file)) for problem in report.problems)
    return replace(report, path=str(path), problems=problems)


def _codec(header: BatchHeader) -> str:
    try:
        return Codec(header.codec).name.lower()
    except ValueError:
        return f"unknown ({header.codec})"


def _disk(path: Path) -> RealDisk:
    return RealDisk(str(path.parent))
