"""Source that reads archive and log as one table: archived offsets from the archive, later offsets from the
log.

A plan contains one version of the archive, so that the two parts do not overlap. If records are archived and truncated
after planning, a task that does not find them in the log reads them from a newer version of the archive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.pipeline.archive.file_reader import clusters, read_archived
from penstock.pipeline.archive.offset_lookup import first_offset, offset_at_time
from penstock.pipeline.archive.table import ArchiveTable, ArchiveView, FileBounds
from penstock.pipeline.fetching import OffsetsLost, read_range
from penstock.pipeline.offsets import SourceTopic, TopicPartition, end_offsets_of, offsets_at, topics_of
from penstock.pipeline.options import EARLIEST, LATEST, OptionError, SourceOptions, SubscriptionKind
from penstock.pipeline.planning import Plan, Warn
from penstock.pipeline.range_reading import read_rows, with_offset
from penstock.pipeline.ranges import OffsetRange
from penstock.pipeline.read_settings import ReadSettings
from penstock.pipeline.source import BatchReader
from penstock.pipeline.stream_reader import StreamReader
from penstock.pipeline.table_store import Store
from penstock.pipeline.typed.typed_rows import typed_rows

_NONE = -1
"""Result of a lookup by time if all records are older."""
_TASK_BYTES = 128 << 20
"""Approximate size of archive files that one task of a batch reads, in bytes."""


@dataclass(frozen=True, slots=True)
class TablePlan(Plan):
    table: ArchiveTable
    log_starts: Mapping[TopicPartition, int]
    """Log start offsets, read before the version of the archive was loaded, so that this version contains all records
    that were truncated by then.
    """
    view: ArchiveView

    @classmethod
    def make(cls, options: SourceOptions, read_before: Mapping[str, str] | None = None) -> TablePlan:
        """Plan a read of the subscribed topics. A topic that exists only in the archive is read from there; if several
        archived topics had the name, the one with the newest record.

        A stream passes `read_before`, the topic ids that it has read, by topic name. Then only that topic id is read
        from the archive, and a topic that exists neither in the cluster nor in the archive is skipped. A batch raises
        OptionError for a topic that does not exist.
        """
        assert options.archive is not None
        plan = Plan(options, topics_of(options, skips_missing=True))
        log_starts = end_offsets_of(plan.read_settings, plan.partitions, EARLIEST)
        table = ArchiveTable.at(options.archive)
        view = table.view()
        is_pattern = options.subscription is SubscriptionKind.PATTERN
        topics = dict(plan.topics)
        for name in () if is_pattern else options.topics:
            if name not in topics:
                archived = _archived_topic(view, options, name, (read_before or {}).get(name))
                if archived is not None:
                    topics[name] = archived
                elif read_before is None:
                    raise OptionError(
                        f"there is no topic {name!r}, neither in the cluster nor in the archive"
                    )
        return cls(options, topics, table, log_starts, view)

    def find(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = {}
        for partition, time_ms in times.items():
            is_gone = partition not in self.log_starts
            if time_ms == EARLIEST:
                found[partition] = self._first_offset(partition)
            elif time_ms == LATEST and is_gone:
                found[partition] = self.archived(*partition)
            elif time_ms != LATEST and (offset := self._archived_at(partition, time_ms)) is not None:
                found[partition] = offset
            elif is_gone:
                found[partition] = _NONE
        live = {partition: time_ms for partition, time_ms in times.items() if partition not in found}
        return found | offsets_at(self.read_settings, live)

    def ranges(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], warn: Warn
    ) -> list[OffsetRange]:
        found = Plan.ranges(self, starts, ends, warn)
        for each in found:
            start = max(each.start, self.archived(each.topic, each.partition))
            log_start = self.log_starts.get((each.topic, each.partition), 0)
            if start < min(log_start, each.end):
                name = f"{each.topic}-{each.partition}"
                self.report_loss(f"{name} is archived up to {start}, but its log starts at {log_start}", warn)
        return found

    def archived(self, topic: str, partition: int) -> int:
        return self.view.archived(self.topics[topic].id, partition) or 0

    def _first_offset(self, partition: TopicPartition) -> int:
        name, number = partition
        archived = first_offset(self.view.files(name), self.topics[name].id, number)
        return self.log_starts.get(partition, 0) if archived is None else archived

    def _archived_at(self, partition: TopicPartition, time_ms: int) -> int | None:
        name, number = partition
        files, topic_id = self.view.files(name), self.topics[name].id
        return offset_at_time(self.table.store, files, topic_id, number, time_ms)

    def partition_of(self, wanted: OffsetRange) -> TablePartition:
        archived = min(self.archived(wanted.topic, wanted.partition), wanted.end)
        files = [
            file
            for file in self.view.files(wanted.topic)
            if file.may_hold(wanted.topic_id, wanted.partition, wanted.start, archived)
        ]
        return TablePartition(wanted, self.table.store, files, archived)


def _archived_topic(
    view: ArchiveView, options: SourceOptions, name: str, topic_id: str | None
) -> SourceTopic | None:
    """Archived topic with this name and id; without an id, the topic with this name that has the newest record."""
    files = [file for file in view.files(name) if file.topic_ids and file.partitions]
    if files and topic_id is None:
        newest = max(files, key=lambda file: (file.date, file.times[1].timestamp() if file.times else 0.0))
        topic_id = (newest.topic_ids or ("", ""))[1]
    numbers = [file.partitions[1] for file in files if file.partitions and topic_id in (file.topic_ids or ())]
    if topic_id is None or not numbers:
        return None
    return SourceTopic(name, topic_id, options.assigned.get(name) or tuple(range(max(numbers) + 1)))


class TablePartition(InputPartition):
    """Offset range of a task: offsets below `archived` are in `files` of the archive, later offsets are in the log."""

    def __init__(self, range_: OffsetRange, store: Store, files: Sequence[FileBounds], archived: int) -> None:
        super().__init__(range_)
        self.range = range_
        self.store = store
        self.files = files
        self.archived = archived


class TableReader(BatchReader):
    def partitions(self) -> Sequence[InputPartition]:
        plan = TablePlan.make(self.options)
        ranges = self.select(plan)
        if self.options.in_order:
            return [plan.partition_of(each) for each in ranges if len(each)]
        parts: list[TablePartition] = []
        for wanted in ranges:
            archived = min(max(wanted.start, plan.archived(wanted.topic, wanted.partition)), wanted.end)
            live = self.options.split([replace(wanted, start=archived)])
            parts += _cut(plan.partition_of(replace(wanted, end=archived)))
            parts += map(plan.partition_of, live)
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, TablePartition):
            return iter(())
        return typed_rows(self.options, read_table(self.options, partition))


class TableStreamReader(StreamReader):
    """Streaming source with one task for each partition, so that its records arrive in order."""

    def plan(self, read_before: Mapping[str, str] | None = None) -> TablePlan:
        return TablePlan.make(self.options, read_before)

    def pieces(self, plan: Plan, ranges: list[OffsetRange]) -> Sequence[InputPartition]:
        assert isinstance(plan, TablePlan)
        return [plan.partition_of(each) for each in ranges if len(each)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TablePartition)
        return typed_rows(self.options, read_table(self.options, partition))


def read_table(options: SourceOptions, partition: TablePartition) -> Iterator[pa.RecordBatch]:
    """Rows of the range in offset order, read in a task."""
    wanted, archived = partition.range, partition.archived
    if wanted.start < archived:
        below = replace(wanted, end=archived)
        yield from read_archived(partition.store, partition.files, below, options.columns)
    rest = replace(wanted, start=max(wanted.start, archived))
    while len(rest):
        following = rest.start
        try:
            read_settings = ReadSettings(options.bootstrap, options.read_committed)
            for rows in read_range(read_settings, rest, with_offset(options.columns)):
                following = rows.column("offset")[-1].as_py() + 1
                yield rows.select(list(options.columns))
            return
        except OffsetsLost:
            rest = replace(rest, start=following)
            view = ArchiveTable(partition.store).view()
            newly = min(view.archived(rest.topic_id, rest.partition) or 0, rest.end)
            if newly <= following:
                break  # the offsets were deleted before they were archived
            between = replace(rest, end=newly)
            yield from read_archived(partition.store, view.files(rest.topic), between, options.columns)
            rest = replace(rest, start=newly)
    if len(rest):
        yield from read_rows(options, rest)


def _cut(partition: TablePartition) -> list[TablePartition]:
    """Split the archived part of a range at file boundaries, so that several tasks read it."""
    if not len(partition.range):
        return []
    parts: list[list[FileBounds]] = [[]]
    size = 0
    for cluster in clusters(partition.files):
        if size >= _TASK_BYTES:
            parts.append([])
            size = 0
        parts[-1] += cluster
        size += sum(file.size_bytes for file in cluster)
    bounds = [min(file.offsets[0] if file.offsets else 0 for file in part) for part in parts[1:]]
    edges = [partition.range.start, *bounds, partition.range.end]
    return [
        TablePartition(
            replace(partition.range, start=edges[place], end=edges[place + 1]),
            partition.store,
            files,
            partition.archived,
        )
        for place, files in enumerate(parts)
    ]
