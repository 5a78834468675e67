"""Archiver: the driver plans offset ranges, tasks write them as Parquet files, one commit adds them to the
table.

Each round is planned from one version of the table, and the table refuses a commit that is based on an older
version. Each record is therefore archived once, also after crashes and with several archivers. A run ends at
the last stable offsets of its start, so only records of committed transactions are archived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from penstock.clock import SystemClock
from penstock.declared.value_schema import ValueSchema
from penstock.errors import BrokerError, PenstockError
from penstock.pipeline.archive.file_writer import SourcePartition, write_files
from penstock.pipeline.archive.table import (
    ArchivedFile,
    ArchiveTable,
    ArchiveView,
    CommitRefused,
    FileBounds,
)
from penstock.pipeline.archive.topic_admin import ARCHIVE_REQUIRED, note_archived, topic_settings, truncate
from penstock.pipeline.columns import ALL
from penstock.pipeline.fetching import OffsetsLost, read_range
from penstock.pipeline.offsets import SourceTopic, TopicPartition, end_offsets_of, topics_of
from penstock.pipeline.options import EARLIEST, LATEST, SourceOptions
from penstock.pipeline.planning import limited
from penstock.pipeline.ranges import OffsetRange, split
from penstock.pipeline.read_settings import ReadSettings
from penstock.pipeline.table_store import Store
from penstock.pipeline.typed.arrow_types import value_fields
from penstock.pipeline.typed.typed_rows import typed_by

OFFSETS_A_ROUND = 20_000_000
LEAST_OFFSETS_A_TASK = 100_000
_TASKS_A_CORE = 4
_ATTEMPTS = 20
"""Number of consecutive rounds whose commit may be refused before the archiver gives up."""

OpenSession = Callable[[], SparkSession]
"""Function that opens the Spark session. Called only when there is work, because starting Spark takes seconds."""


class ArchivingFailed(PenstockError):
    pass


@dataclass(frozen=True, slots=True)
class ArchiveJob:
    options: SourceOptions
    table: ArchiveTable
    truncates: bool = False
    grace_ms: int = 600_000
    """Time in milliseconds for which truncation keeps archived records in the log. Reads that were planned before the
    records were archived still fetch them from the log.
    """
    offsets_a_round: int = OFFSETS_A_ROUND
    schema: ValueSchema | None = None
    """Schema by which values are also parsed into typed columns of the archive; None for no typed columns. For a value
    that does not match the schema, the column `value_error` contains the reason.
    """

    @property
    def read_settings(self) -> ReadSettings:
        return ReadSettings(self.options.bootstrap, read_committed=True)


@dataclass(frozen=True, slots=True)
class ArchiveProgress:
    """Totals of a run so far."""

    rows: int = 0
    files: int = 0
    offsets: int = 0
    offsets_left: int = 0
    bytes: int = 0
    """Size of the files written, in bytes."""


@dataclass(frozen=True, slots=True)
class _RangeResult:
    """Result of one range in a task: the files written, or the reason why there are none."""

    range: OffsetRange
    files: tuple[ArchivedFile, ...] = ()
    problem: str | None = None


class Archiver:
    def __init__(self, job: ArchiveJob, open_session: OpenSession, warn: Callable[[str], None]) -> None:
        self._job = job
        self._open_session = open_session
        self._warn = warn

    def run(self) -> Iterator[ArchiveProgress]:
        """Archive all records up to the current end of the topics. Yields the totals after each round, and
        once at the end if there was nothing to archive.
        """
        topics = topics_of(self._job.options)
        view = self._job.table.view_or_create()
        if self._job.schema is not None:
            view = self._job.table.add_columns(view, value_fields(self._job.schema))
        partitions = [(topic.name, number) for topic in topics.values() for number in topic.partitions]
        targets = end_offsets_of(self._job.read_settings, partitions, LATEST)
        self._warn_of_lost_tails(topics, view, targets)
        done, refused_rounds = ArchiveProgress(), 0
        while ranges := self._ranges(topics, view, targets):
            written = self._write(self._limited_to_round(ranges))
            if self._commit(view, written):
                done, refused_rounds = _advanced(done, written, ranges), 0
                view = self._job.table.view()
                self._release(topics, view)
                yield done
                continue
            refused_rounds += 1
            if refused_rounds == _ATTEMPTS:
                raise ArchivingFailed(
                    f"{self._job.table.store.uri}: {refused_rounds} commits in a row were refused, because "
                    "other writers changed the table; stop them and run the archiver again"
                )
            topics, targets = self._without_deleted(topics, targets)
            view = self._job.table.view()
        if not done.offsets:
            # An earlier archiver may have stopped after its commit and before its release.
            self._release(topics, view)
            yield done

    def _without_deleted(
        self, topics: Mapping[str, SourceTopic], targets: Mapping[TopicPartition, int]
    ) -> tuple[dict[str, SourceTopic], dict[TopicPartition, int]]:
        """Drop topics that were deleted after the plan was made, including topics that were created again under the
        same name. The next run archives the new topic.
        """
        now = topics_of(self._job.options, skips_missing=True)
        same = {name: topic for name, topic in topics.items() if name in now and now[name].id == topic.id}
        return same, {partition: end for partition, end in targets.items() if partition[0] in same}

    def _ranges(
        self, topics: Mapping[str, SourceTopic], view: ArchiveView, targets: Mapping[TopicPartition, int]
    ) -> list[OffsetRange]:
        """Offset ranges below `targets` that are not archived yet."""
        earliest = end_offsets_of(self._job.read_settings, targets, EARLIEST)
        found = []
        for (name, number), end in targets.items():
            topic_id = topics[name].id
            archived = view.archived(topic_id, number)
            start = max(archived or 0, earliest[name, number])
            if archived is not None and archived < start:
                self._warn(
                    f"{name}-{number}: offsets {archived} to {start} were deleted before they were archived"
                )
            if start < end:
                found.append(OffsetRange(name, topic_id, number, start, end))
        return found

    def _limited_to_round(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        by_partition = {(each.topic, each.partition): each for each in ranges}
        starts = {partition: each.start for partition, each in by_partition.items()}
        ends = limited(
            starts, {name: each.end for name, each in by_partition.items()}, self._job.offsets_a_round
        )
        return [
            replace(each, end=ends[partition])
            for partition, each in by_partition.items()
            if ends[partition] > each.start
        ]

    def _write(self, ranges: list[OffsetRange]) -> list[_RangeResult]:
        context = self._open_session().sparkContext
        cores = context.defaultParallelism
        worthwhile = 1 + sum(map(len, ranges)) // LEAST_OFFSETS_A_TASK
        pieces = split(ranges, min(_TASKS_A_CORE * cores, worthwhile))
        slices = min(len(pieces), _TASKS_A_CORE * cores)
        read_settings, store, schema = self._job.read_settings, self._job.table.store, self._job.schema
        work = context.parallelize(pieces, slices).map(
            lambda piece: _write_range(read_settings, store, piece, schema)
        )
        return list(work.collect())

    def _commit(self, view: ArchiveView, written: list[_RangeResult]) -> bool:
        problems = [each.problem for each in written if each.problem is not None]
        if problems:
            self._warn(problems[0])
            return False
        ends: dict[tuple[str, int], int] = {}
        for each in written:
            name = (each.range.topic_id, each.range.partition)
            ends[name] = max(each.range.end, ends.get(name, 0))
        try:
            self._job.table.commit(view, [file for each in written for file in each.files], ends)
        except CommitRefused:
            return False
        return True

    def _release(self, topics: Mapping[str, SourceTopic], view: ArchiveView) -> None:
        """Allow the cluster to delete archived records, once the archive is on stable storage and its files are
        verified.

        Raises FilesMissing, and releases nothing, if the archive lacks a file whose records are still in the logs.
        """
        bootstrap = self._job.options.bootstrap
        topics, _ = self._without_deleted(
            topics, {}
        )  # archived offsets of a deleted topic do not apply to a new topic of that name
        settings = topic_settings(bootstrap, list(topics), [ARCHIVE_REQUIRED])
        held = {
            name: _archived(view, topics[name])
            for name, values in settings.items()
            if values.get(ARCHIVE_REQUIRED) == "true"
        }
        if not held and not self._job.truncates:
            return
        partitions = [(each.name, number) for each in topics.values() for number in each.partitions]
        earliest = end_offsets_of(self._job.read_settings, partitions, EARLIEST)
        self._job.table.make_durable(view)
        self._job.table.check_files(_files_since(earliest, topics, view))
        if held:
            note_archived(bootstrap, held)
        if self._job.truncates:
            old = self._job.table.view_at(SystemClock().now_ms() - self._job.grace_ms)
            due = {
                (topic.name, number): offset
                for topic in topics.values()
                for number, offset in _archived(old, topic).items()
                if offset > earliest[topic.name, number]
            }
            try:
                truncate(bootstrap, due)
            except BrokerError as error:
                self._warn(f"some partitions were not truncated, the next run tries again: {error}")

    def _warn_of_lost_tails(
        self, topics: Mapping[str, SourceTopic], view: ArchiveView, targets: Mapping[TopicPartition, int]
    ) -> None:
        for (name, number), end in targets.items():
            archived = view.archived(topics[name].id, number)
            if archived is not None and archived > end:
                self._warn(
                    f"{name}-{number} ends at {end}, but is archived up to {archived}: "
                    "records between these offsets are not archived again"
                )


def _archived(view: ArchiveView, topic: SourceTopic) -> dict[int, int]:
    ends = {number: view.archived(topic.id, number) for number in topic.partitions}
    return {number: end for number, end in ends.items() if end is not None}


def _files_since(
    earliest: Mapping[TopicPartition, int], topics: Mapping[str, SourceTopic], view: ArchiveView
) -> Iterator[FileBounds]:
    """Files with records that are still in the logs. After a truncation these files are the only copy of the
    records.
    """
    for topic in topics.values():
        ends = _archived(view, topic)
        for file in view.files(topic.name):
            low, high = file.partitions or (0, max(ends, default=-1))
            if any(
                number in ends and file.may_hold(topic.id, number, earliest[topic.name, number], ends[number])
                for number in range(low, high + 1)
            ):
                yield file


def _write_range(
    read_settings: ReadSettings, store: Store, wanted: OffsetRange, schema: ValueSchema | None
) -> _RangeResult:
    """Write one range in a task. If offsets were deleted, the result has a `problem` and the task does not fail: the
    driver plans the round again.
    """
    origin = SourcePartition(wanted.topic, wanted.topic_id, wanted.partition)
    try:
        rows, extra = typed_by(schema, read_range(read_settings, wanted, ALL))
        files = write_files(store, origin, rows, extra)
    except OffsetsLost as error:
        return _RangeResult(wanted, problem=str(error))
    return _RangeResult(wanted, tuple(files))


def _advanced(
    done: ArchiveProgress, written: list[_RangeResult], ranges: list[OffsetRange]
) -> ArchiveProgress:
    files = [file for each in written for file in each.files]
    offsets = sum(len(each.range) for each in written)
    return ArchiveProgress(
        done.rows + sum(file.rows for file in files),
        done.files + len(files),
        done.offsets + offsets,
        sum(map(len, ranges)) - offsets,
        done.bytes + sum(file.size_bytes for file in files),
    )
