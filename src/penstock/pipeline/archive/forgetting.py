"""Erasure: remove the records of a key from an archive, and delete the key in compacted topics.

Files that contain the key are rewritten without it, and one commit replaces them. The replaced files, and files of
older table versions that contain the key, are deleted at once: queries that were planned on an older version fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.clock import SystemClock
from penstock.errors import PenstockError
from penstock.internal_client.partitioner import partition_for
from penstock.internal_client.produce_loop import PartitionProducer
from penstock.internal_client.routes import Routes
from penstock.pipeline.archive.archiver import OpenSession
from penstock.pipeline.archive.file_reader import read_archived
from penstock.pipeline.archive.file_writer import SourcePartition, write_files
from penstock.pipeline.archive.table import ArchivedFile, ArchiveTable, ArchiveView, CommitRefused, FileBounds
from penstock.pipeline.archive.topic_admin import topic_settings
from penstock.pipeline.columns import ALL
from penstock.pipeline.offsets import run, topic_names
from penstock.pipeline.ranges import OffsetRange
from penstock.pipeline.table_store import Store
from penstock.records.building import NewRecord

CLEANUP_POLICY = "cleanup.policy"
_ATTEMPTS = 10
_WRITE_SECONDS = 30.0
_SETTLED_SECONDS = 600
"""Age in seconds from which a file that no table version refers to is taken as left over: it belongs to no running
task.
"""


class ForgettingFailed(PenstockError):
    pass


@dataclass(slots=True)
class TopicReport:
    """Result of the erasure for one topic."""

    topic: str
    records: int = 0
    files: int = 0
    """Number of rewritten files."""
    tombstone: bool = False
    """True if a tombstone for the key was written to the topic, which is compacted."""
    note: str = ""


@dataclass(slots=True)
class ForgetReport:
    topics: list[TopicReport] = field(default_factory=list)
    deleted_files: int = 0

    @property
    def records(self) -> int:
        return sum(each.records for each in self.topics)


@dataclass(frozen=True, slots=True)
class _Rewritten:
    topic: str
    old: FileBounds
    new: tuple[ArchivedFile, ...]
    removed: int


def forget(
    bootstrap: str, table: ArchiveTable, key: bytes, topics: Sequence[str], open_session: OpenSession
) -> ForgetReport:
    """Remove the records of a key from the topics of an archive. Repeating a run is harmless."""
    report = ForgetReport([TopicReport(topic) for topic in topics])
    by_name = {each.topic: each for each in report.topics}
    view = table.view()
    missing = [topic for topic in topics if topic not in view.topics and topic not in topic_names(bootstrap)]
    if missing:
        raise ForgettingFailed(f"neither the archive nor the cluster has a topic {missing[0]!r}")
    # The tombstone is written first. If a run dies after it, the next run finds the records that were archived in
    # between.
    for name in _compacted(bootstrap, topics):
        run(bootstrap, partial(_write_tombstone, topic=name, key=key))
        by_name[name].tombstone = True
    done = _remove(table, view, key, topics, open_session)
    for rewritten in done:
        by_name[rewritten.topic].records += rewritten.removed
        by_name[rewritten.topic].files += 1
    for each in report.topics:
        if not each.tombstone and each.topic in topic_names(bootstrap):
            each.note = "the log of the topic keeps the records until its retention deletes them"
    replaced = [rewritten.old.name for rewritten in done]
    report.deleted_files = _delete(table.store, [*replaced, *_old_versions(table, key, topics)])
    return report


def _old_versions(table: ArchiveTable, key: bytes, topics: Sequence[str]) -> list[str]:
    """Files with the key that the newest version of the table does not refer to. Recent files are left out: running
    tasks may have written them.
    """
    found = []
    for name in table.unreferenced(_SETTLED_SECONDS):
        if any(name.startswith(f"topic={topic}/") for topic in topics):
            with suppress(pa.ArrowInvalid, OSError), table.store.open(name) as file:
                keys = pq.read_table(file, columns=["key"]).column("key")
                if pc.any(pc.equal(keys, key)).as_py():
                    found.append(name)
    return found


def _delete(store: Store, names: Sequence[str]) -> int:
    for name in dict.fromkeys(names):
        store.delete(name)
    return len(set(names))


def _remove(
    table: ArchiveTable, view: ArchiveView, key: bytes, topics: Sequence[str], open_session: OpenSession
) -> list[_Rewritten]:
    for _ in range(_ATTEMPTS):
        files = [(topic, file) for topic in topics for file in view.files(topic)]
        if not files:
            return []
        store, extra = table.store, list(view.extra)
        context = open_session().sparkContext
        slices = min(len(files), 4 * context.defaultParallelism)
        done: list[_Rewritten] = (
            context.parallelize(files, slices).flatMap(partial(_without_key, store, key, extra)).collect()
        )
        if not done:
            return []
        try:
            table.replace(
                view,
                [each.old for each in done],
                [file for each in done for file in each.new],
                changes_data=True,
            )
        except CommitRefused:
            view = table.view()
            continue
        return done
    raise ForgettingFailed(
        f"other writers change {table.store.uri} all the time: stop the archiver, then run this again"
    )


def _without_key(
    store: Store, key: bytes, extra: Sequence[pa.Field], place: tuple[str, FileBounds]
) -> list[_Rewritten]:
    """Rewrite a file without the key, in a task. Nothing is written if the file does not contain the key."""
    topic, file = place
    with store.open(file.name) as source, pq.ParquetFile(source) as opened:
        keys = opened.read(columns=["key", "topic_id", "partition", "offset"])
    removed = pc.sum(pc.fill_null(pc.equal(keys.column("key"), key), False)).as_py() or 0
    if not removed:
        return []
    origins = {
        (row["topic_id"], row["partition"]) for row in keys.select(["topic_id", "partition"]).to_pylist()
    }
    new: list[ArchivedFile] = []
    for topic_id, partition in sorted(origins):
        offsets = keys.column("offset")
        wanted = OffsetRange(topic, topic_id, partition, pc.min(offsets).as_py(), pc.max(offsets).as_py() + 1)
        rows = _others(read_archived(store, [file], wanted, ALL, extra), key)
        new += write_files(store, SourcePartition(topic, topic_id, partition), rows, extra)
    return [_Rewritten(topic, file, tuple(new), int(removed))]


def _others(rows: Iterator[pa.RecordBatch], key: bytes) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        kept = batch.filter(pc.invert(pc.fill_null(pc.equal(batch.column("key"), key), False)))
        if kept.num_rows:
            yield kept


def _compacted(bootstrap: str, topics: Sequence[str]) -> list[str]:
    present = [topic for topic in topics if topic in topic_names(bootstrap)]
    settings = topic_settings(bootstrap, present, [CLEANUP_POLICY]) if present else {}
    return [topic for topic, values in settings.items() if "compact" in (values.get(CLEANUP_POLICY) or "")]


async def _write_tombstone(routes: Routes, topic: str, key: bytes) -> None:
    partition = partition_for(key, len((await routes.topic(topic)).partitions))
    deadline = asyncio.get_running_loop().time() + _WRITE_SECONDS
    record = NewRecord(key, None, SystemClock().now_ms())
    await PartitionProducer(routes, topic, partition).write([record], deadline)
