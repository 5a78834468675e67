"""Archive maintenance: merges small files of a day, deletes expired days, and vacuums unreferenced files.

A merge keeps all rows and their order. The table refuses a change that conflicts with another commit; the next
maintenance run tries again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

import pyarrow as pa

from penstock.pipeline.archive.archiver import OpenSession
from penstock.pipeline.archive.file_reader import read_archived
from penstock.pipeline.archive.file_writer import SourcePartition, write_files
from penstock.pipeline.archive.table import (
    ArchivedFile,
    ArchiveTable,
    ArchiveView,
    CommitRefused,
    FileBounds,
)
from penstock.pipeline.columns import ALL
from penstock.pipeline.ranges import OffsetRange
from penstock.pipeline.table_store import Store

SMALL_BYTES = 64 << 20
WORTHWHILE_FILES = 16
"""Minimum number of small files of one partition and day for a merge."""
MERGED_BYTES = 256 << 20
KEEP_HOURS = 168
"""Hours for which old versions of the table stay readable: reads that were planned on an old version still find its
files.
"""


@dataclass(frozen=True, slots=True)
class _Merge:
    origin: SourcePartition
    files: tuple[FileBounds, ...]


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    merged: int = 0
    expired: int = 0
    vacuumed: int = 0


def maintain(
    table: ArchiveTable,
    open_session: OpenSession,
    expires_before: date | None,
    worthwhile: int = WORTHWHILE_FILES,
) -> MaintenanceResult:
    expired = _expire(table, expires_before) if expires_before is not None else 0
    merged = _merge_small(table, open_session, worthwhile)
    vacuumed = len(table.vacuum(KEEP_HOURS)) if expired or merged else 0
    return MaintenanceResult(merged, expired, vacuumed)


def _expire(table: ArchiveTable, before: date) -> int:
    view = table.view()
    old = [file for file in view.all_files() if file.date < before]
    return len(old) if old and _replace(table, view, old, [], changes_data=True) else 0


def _merge_small(table: ArchiveTable, open_session: OpenSession, worthwhile: int) -> int:
    view = table.view()
    merges = list(_worthwhile(view, worthwhile))
    if not merges:
        return 0
    store, extra = table.store, list(view.extra)
    context = open_session().sparkContext
    slices = min(len(merges), 4 * context.defaultParallelism)
    written: list[ArchivedFile] = (
        context.parallelize(merges, slices)
        .flatMap(lambda merge: _write_merged(store, merge, extra))
        .collect()
    )
    old = [file for merge in merges for file in merge.files]
    if sum(file.rows for file in written) != sum(file.rows or 0 for file in old):
        return 0  # another tool wrote this file, as it also holds rows of other partitions
    return len(old) if _replace(table, view, old, written, changes_data=False) else 0


def _replace(
    table: ArchiveTable,
    view: ArchiveView,
    old: list[FileBounds],
    new: list[ArchivedFile],
    *,
    changes_data: bool,
) -> bool:
    """Replace files in one commit; retry after conflicts. Returns False if another commit has removed one of the old
    files.
    """
    while True:
        try:
            table.replace(view, old, new, changes_data=changes_data)
        except CommitRefused:
            view = table.view()
            if not {file.name for file in old} <= {file.name for file in view.all_files()}:
                return False
        else:
            return True


def _worthwhile(view: ArchiveView, worthwhile: int) -> Iterator[_Merge]:
    groups: dict[tuple[str, date, str, int], list[FileBounds]] = {}
    for file in view.all_files():
        ids, partitions = file.topic_ids, file.partitions
        if (
            file.size_bytes < SMALL_BYTES
            and file.rows is not None
            and file.offsets is not None
            and ids is not None
            and ids[0] == ids[1]
            and partitions is not None
            and partitions[0] == partitions[1]
        ):
            groups.setdefault((file.topic, file.date, ids[0], partitions[0]), []).append(file)
    for (topic, _, topic_id, partition), files in groups.items():
        files.sort(key=lambda file: file.offsets or (0, 0))
        origin = SourcePartition(topic, topic_id, partition)
        while len(files) >= worthwhile:
            taken, size = 0, 0
            while taken < len(files) and (taken < 2 or size < MERGED_BYTES):
                size += files[taken].size_bytes
                taken += 1
            yield _Merge(origin, tuple(files[:taken]))
            files = files[taken:]


def _write_merged(store: Store, merge: _Merge, extra: Sequence[pa.Field]) -> list[ArchivedFile]:
    """Merge files in a task."""
    origin = merge.origin
    ends = [file.offsets for file in merge.files if file.offsets is not None]
    wanted = OffsetRange(
        origin.topic, origin.topic_id, origin.partition, min(ends)[0], max(high for _, high in ends) + 1
    )
    rows: Iterator[pa.RecordBatch] = read_archived(store, merge.files, wanted, ALL, extra)
    return write_files(store, origin, rows, extra)
