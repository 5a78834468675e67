"""Delta table of an archive: its versions, its files, and the commits that change it.

Every commit of the archiver records the archived end offset of each (topic id, partition) as an application transaction
of Delta. If two archivers write the same offsets, the table refuses one of the commits (`CommitRefused`), so each
record is archived once. A view is one immutable version of the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import Field as DeltaField
from deltalake.schema import Schema as DeltaSchema
from deltalake.transaction import AddAction, RemoveAction, Transaction

from penstock.clock import SystemClock
from penstock.errors import PenstockError
from penstock.pipeline.causes import storage_reason
from penstock.pipeline.columns import FIELDS
from penstock.pipeline.restored import WRITER, restored_reason
from penstock.pipeline.table_store import Store, storage_options, store_at

_ARCHIVER = "penstock-archive"
TOPIC_ID, DATE = "topic_id", "date"
PARTITION_BY = ("topic", DATE)
FILE_COLUMNS = ("key", "value", "headers", TOPIC_ID, "partition", "offset", "timestamp", "timestampType")
"""Columns in the Parquet files. Topic and date are in the file paths and in the table's log."""

_FIELDS = {**FIELDS, TOPIC_ID: pa.field(TOPIC_ID, pa.string()), DATE: pa.field(DATE, pa.date32())}
FILE_SCHEMA = pa.schema([_FIELDS[name] for name in FILE_COLUMNS])
SCHEMA = pa.schema([*FILE_SCHEMA, _FIELDS["topic"], _FIELDS[DATE]])

LAST_DATE = date(9999, 12, 31)
_ATTEMPTS = 20
_VERSIONS_IN_DOUBT = 1_000
"""Number of newest log entries to fsync. The operating system has long written older entries to disk."""


class ArchiveError(PenstockError):
    """The location contains no archive, or something other than an archive."""


class FilesMissing(ArchiveError):
    """A file of the archive is missing or has the wrong size, as seen by the driver."""


class CommitRefused(PenstockError):
    """Another commit changed the table first. The caller loads a new view and tries again."""


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file written by a task: rows of one partition in offset order."""

    name: str
    topic: str
    topic_id: str
    partition: int
    date: date
    rows: int
    size_bytes: int
    first_offset: int
    last_offset: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class FileBounds:
    """A file with its statistics (minimum and maximum) from the table's log. A field is None if the log has no
    statistics for it.
    """

    name: str
    topic: str
    date: date
    rows: int | None
    size_bytes: int
    topic_ids: tuple[str, str] | None
    partitions: tuple[int, int] | None
    offsets: tuple[int, int] | None
    times: tuple[datetime, datetime] | None

    def may_hold(self, topic_id: str, partition: int, start: int, end: int) -> bool:
        return (
            (self.topic_ids is None or self.topic_ids[0] <= topic_id <= self.topic_ids[1])
            and (self.partitions is None or self.partitions[0] <= partition <= self.partitions[1])
            and (self.offsets is None or (self.offsets[0] < end and start <= self.offsets[1]))
        )


class ArchiveView:
    """One immutable version of the table."""

    def __init__(self, table: DeltaTable) -> None:
        self._table = table
        self._files: dict[str, list[FileBounds]] | None = None

    @property
    def version(self) -> int:
        return self._table.version()

    def archived(self, topic_id: str, partition: int) -> int | None:
        """End offset up to which a partition is archived (exclusive); None if it was never archived."""
        return self._table.transaction_version(_application(topic_id, partition))

    @property
    def extra(self) -> pa.Schema:
        """Columns in addition to those of the record: typed columns of values, and columns that other tools have
        added.
        """
        found = pa.schema(self._table.schema())
        return pa.schema([field for field in found if field.name not in SCHEMA.names])

    def files(self, topic: str) -> Sequence[FileBounds]:
        return self._by_topic().get(topic, [])

    def all_files(self) -> list[FileBounds]:
        return [file for files in self._by_topic().values() for file in files]

    @property
    def topics(self) -> list[str]:
        return sorted(self._by_topic())

    def _by_topic(self) -> dict[str, list[FileBounds]]:
        if self._files is None:
            self._files = {}
            for row in pa.table(self._table.get_add_actions(flatten=True)).to_pylist():
                file = _bounds_of(row)
                self._files.setdefault(file.topic, []).append(file)
        return self._files


class ArchiveTable:
    def __init__(self, store: Store) -> None:
        self.store = store

    @classmethod
    def at(cls, place: str) -> ArchiveTable:
        return cls(store_at(place))

    def view(self) -> ArchiveView:
        """Newest version. Raises ArchiveError if there is no archive."""
        return ArchiveView(self._load())

    def view_at(self, time_ms: int) -> ArchiveView:
        """Newest version at `time_ms`; if all versions are newer, the first version, which is empty."""
        table = self._load()
        table.load_as_version(datetime.fromtimestamp(time_ms / 1000, UTC))
        return ArchiveView(table)

    def view_or_create(self) -> ArchiveView:
        """Newest version, for writers; creates the table if it does not exist. Raises ArchiveError if another tool
        restored the table to an older version.
        """
        for _ in range(_ATTEMPTS):
            try:
                view = ArchiveView(self._checked(self._open()))
            except TableNotFoundError:
                self._create()
                continue
            reason = restored_reason(view._table, self.store, _ARCHIVER)
            if reason is not None:
                raise ArchiveError(f"{reason}, or archive to another place")
            return view
        raise ArchiveError(f"cannot create a table at {self.store.uri}")

    def add_columns(self, view: ArchiveView, columns: Sequence[pa.Field]) -> ArchiveView:
        """Add columns that the table does not have. Returns the newest version. Raises ArchiveError if a column has
        another type.
        """
        wanted = DeltaSchema.from_arrow(pa.schema(columns)).fields
        for _ in range(_ATTEMPTS):
            present = {field.name: field.type for field in view._table.schema().fields}
            for field in wanted:
                if field.name in present and present[field.name] != field.type:
                    raise ArchiveError(
                        f"the column {field.name!r} of {self.store.uri} has another type in the schema than in the "
                        "archive: give the field another name, or archive to another place"
                    )
            new = [
                DeltaField(each.name, each.type, nullable=True) for each in wanted if each.name not in present
            ]
            if not new:
                return view
            try:
                view._table.alter.add_columns(new)
            except DeltaError as error:
                if not isinstance(error, CommitFailedError):
                    raise ArchiveError(
                        f"cannot add columns to {self.store.uri}: {storage_reason(error)}"
                    ) from error
            self.store.make_versions_durable(view.version + 1, self._open().version())
            view = self.view()
        raise ArchiveError(f"cannot add columns to {self.store.uri}: other writers change it all the time")

    def commit(
        self,
        view: ArchiveView,
        files: Iterable[ArchivedFile],
        archived: Mapping[tuple[str, int], int],
    ) -> None:
        """Add files, and record the archived end offset of each (topic id, partition).

        The tasks that wrote the files started at the archived end offsets of the view. Raises FilesMissing, and commits
        nothing, if this process does not see every file in its full size. The commit is on stable storage on return.
        """
        files = list(files)
        self._check_written(files)
        now_ms = SystemClock().now_ms()
        ends = [
            Transaction(_application(topic_id, partition), end, now_ms)
            for (topic_id, partition), end in archived.items()
        ]
        properties = CommitProperties(custom_metadata={WRITER: _ARCHIVER}, app_transactions=ends)
        self._write(view, [_add(file, now_ms, True) for file in files], properties)

    def replace(
        self, view: ArchiveView, old: Iterable[FileBounds], new: Iterable[ArchivedFile], *, changes_data: bool
    ) -> None:
        """Replace the files `old` by `new` in one commit. Raises CommitRefused if the view is not the newest version,
        because deltalake does not detect that another commit removed the same files. Raises FilesMissing in the same
        cases as `commit`.
        """
        new = list(new)
        self._check_written(new)
        now_ms = SystemClock().now_ms()
        removed = [
            RemoveAction(
                file.name,
                changes_data,
                now_ms,
                file.size_bytes,
                {"topic": file.topic, DATE: file.date.isoformat()},
            )
            for file in old
        ]
        added = [_add(file, now_ms, changes_data) for file in new]
        self._write(view, [*removed, *added], CommitProperties(max_commit_retries=0))

    def make_durable(self, view: ArchiveView) -> None:
        """Fsync the log entries up to the version of the view: the archiver that wrote them may have stopped before its
        fsync.
        """
        self.store.make_versions_durable(max(0, view.version - _VERSIONS_IN_DOUBT), view.version)

    def check_files(self, files: Iterable[FileBounds]) -> None:
        """Raise FilesMissing unless all of these files exist in their full size."""
        problem = self.store.problem_with({file.name: file.size_bytes for file in files})
        if problem is not None:
            raise FilesMissing(
                f"the archive {self.store.uri} is not complete: {problem}. Nothing is truncated or released: "
                "restore the file, or archive to another place while the topic still has the records"
            )

    def _check_written(self, files: Iterable[ArchivedFile]) -> None:
        problem = self.store.problem_with({file.name: file.size_bytes for file in files})
        if problem is not None:
            raise FilesMissing(not_shared(self.store, problem))

    def vacuum(self, keep_hours: int) -> list[str]:
        """Delete files that no version of the last `keep_hours` hours refers to, including files of failed
        tasks.
        """
        return self._load().vacuum(
            retention_hours=keep_hours, dry_run=False, enforce_retention_duration=False, full=True
        )

    def unreferenced(self, seconds: int) -> list[str]:
        """Files that the newest version does not refer to, and that are at least this old if the store knows ages."""
        found = self._load().vacuum(
            retention_hours=0, dry_run=True, enforce_retention_duration=False, full=True
        )
        before = SystemClock().now_ms() / 1000 - seconds
        return [name for name in found if self.store.modified(name, before)]

    def _write(self, view: ArchiveView, actions: list[Any], properties: CommitProperties) -> None:
        table = view._table
        try:
            table.create_write_transaction(
                actions, "append", table.schema(), list(PARTITION_BY), commit_properties=properties
            )
        except CommitFailedError as error:
            raise CommitRefused(str(error)) from error
        # This commit is among the versions after that of the view.
        self.store.make_versions_durable(view.version + 1, self._open().version())

    def _create(self) -> None:
        if self.store.is_occupied():
            raise ArchiveError(f"{self.store.uri} is not empty and not an archive: choose another location")
        try:
            DeltaTable.create(
                self.store.uri,
                SCHEMA,
                partition_by=list(PARTITION_BY),
                name="penstock archive",
                storage_options=storage_options(self.store),
            )
        except (DeltaError, OSError) as error:
            if not DeltaTable.is_deltatable(self.store.uri, storage_options(self.store)):
                raise ArchiveError(
                    f"cannot create an archive at {self.store.uri}: {storage_reason(error)}"
                ) from error
            return  # another archiver created the table first
        self.store.make_durable(["_delta_log/00000000000000000000.json"])

    def _load(self) -> DeltaTable:
        try:
            return self._checked(self._open())
        except TableNotFoundError:
            raise ArchiveError(f"there is no archive at {self.store.uri}") from None

    def _open(self) -> DeltaTable:
        try:
            return DeltaTable(self.store.uri, storage_options=storage_options(self.store))
        except TableNotFoundError:
            raise
        except (DeltaError, OSError) as error:
            raise ArchiveError(
                f"the table at {self.store.uri} cannot be read: {storage_reason(error)}"
            ) from error

    def _checked(self, table: DeltaTable) -> DeltaTable:
        found = {field.name: field.type for field in pa.schema(table.schema())}
        wanted = {field.name: field.type for field in SCHEMA}
        if tuple(table.metadata().partition_columns) != PARTITION_BY or not _is_like(found, wanted):
            raise ArchiveError(f"the table at {self.store.uri} is not an archive: it has other columns")
        return table


def not_shared(store: Store, problem: str) -> str:
    """Error message for files that the tasks have written but the driver does not see."""
    return (
        f"a task has written a file that the driver does not see: {problem}. The workers do not share "
        f"{store.uri} with the driver; nothing was committed. Name a directory that all machines share, "
        "or an object store"
    )


def _is_like(found: Mapping[str, pa.DataType], wanted: Mapping[str, pa.DataType]) -> bool:
    """Compare names and types of the columns of the record; further columns are allowed. Nested types are not
    compared: deltalake names the elements of lists itself.
    """
    return found.keys() >= wanted.keys() and all(
        found[name] == kind for name, kind in wanted.items() if not pa.types.is_nested(kind)
    )


def _application(topic_id: str, partition: int) -> str:
    return f"penstock/{topic_id}/{partition}"


def _add(file: ArchivedFile, now_ms: int, changes_data: bool) -> AddAction:
    least = {TOPIC_ID: file.topic_id, "partition": file.partition, "offset": file.first_offset}
    greatest = {**least, "offset": file.last_offset}
    if (low := _time(file.first_ms)) and (high := _time(file.last_ms)):
        least["timestamp"], greatest["timestamp"] = low, high
    stats = {
        "numRecords": file.rows,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": dict.fromkeys((TOPIC_ID, "partition", "offset", "timestamp"), 0),
    }
    values = {"topic": file.topic, DATE: file.date.isoformat()}
    return AddAction(file.name, file.size_bytes, values, now_ms, changes_data, json.dumps(stats))


def _time(timestamp_ms: int) -> str | None:
    """ISO 8601 time; None if the timestamp is outside the calendar."""
    try:
        time = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03}Z" if time.year >= 1000 else None


def _bounds_of(row: Mapping[str, Any]) -> FileBounds:
    def bounds(column: str) -> tuple[Any, Any] | None:
        least, greatest = row.get(f"min.{column}"), row.get(f"max.{column}")
        return None if least is None or greatest is None else (least, greatest)

    return FileBounds(
        row["path"],
        row["partition.topic"],
        row["partition.date"],
        row["num_records"],
        row["size_bytes"],
        bounds(TOPIC_ID),
        bounds("partition"),
        bounds("offset"),
        bounds("timestamp"),
    )
