"""Other tools read the archive, also from an S3-compatible store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3
import duckdb
import polars
import pytest
from archive_helpers import job, make, numbers, produce
from deltalake import DeltaTable
from in_process import InProcess
from object_stores import BUCKET, moto_server

from penstock.pipeline.archive.archiver import Archiver
from penstock.pipeline.archive.maintenance import maintain
from penstock.pipeline.archive.table import ArchiveError, ArchiveTable, CommitRefused
from penstock.pipeline.archive.table_source import TableReader, read_table
from penstock.pipeline.offsets import topics_of
from penstock.pipeline.options import parse
from penstock.pipeline.table_store import storage_options, store_at
from penstock.testing.process import BrokerProcess


def run(bootstrap: str, place: str, topic: str) -> None:
    list(Archiver(job(bootstrap, place, topic), InProcess(), pytest.fail).run())


def test_duckdb_pandas_and_polars_read_the_archive(
    penstock_session_broker: BrokerProcess, tmp_path: Path
) -> None:
    bootstrap, place = penstock_session_broker.bootstrap, str(tmp_path / "archive")
    make(bootstrap, "shared")
    produce(bootstrap, "shared", range(100))
    run(bootstrap, place, "shared")
    connection = duckdb.connect()
    connection.register("archive", DeltaTable(place).to_pyarrow_dataset())
    sql = "select count(*), sum(octet_length(value)), count(distinct date) from archive"
    assert connection.execute(sql).fetchall() == [(100, sum(len(b"value %d" % n) for n in range(100)), 5)]
    frame = DeltaTable(place).to_pandas()
    assert sorted(frame["offset"]) == sorted([*range(50), *range(50)])
    assert (
        polars.read_delta(place).filter(polars.col("partition") == 1)["value"].to_list().count(b"value 77")
        == 1
    )


@pytest.fixture
def bucket(starts_processes: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with moto_server() as settings:
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        yield f"s3://{BUCKET}/topics"


def test_archive_is_written_to_and_read_from_an_object_store(
    penstock_session_broker: BrokerProcess, bucket: str
) -> None:
    bootstrap = penstock_session_broker.bootstrap
    make(bootstrap, "remote")
    with pytest.raises(ArchiveError, match="there is no archive"):
        ArchiveTable.at(bucket).view()
    for first in (0, 30, 60):
        produce(bootstrap, "remote", range(first, first + 30))
        run(bootstrap, bucket, "remote")
    table = ArchiveTable.at(bucket)
    stale = table.view()
    produce(bootstrap, "remote", range(90, 100))
    run(bootstrap, bucket, "remote")
    topic_id = topics_of(parse({"bootstrap": bootstrap, "subscribe": "remote"}))["remote"].id
    with pytest.raises(CommitRefused):
        table.commit(stale, [], {(topic_id, 0): 50})
    assert maintain(table, InProcess(), None, worthwhile=2).merged > 0
    store = store_at(bucket)
    rows = DeltaTable(bucket, storage_options=storage_options(store)).to_pyarrow_table()
    assert numbers(rows.to_pylist()) == list(range(100))
    options = parse({"bootstrap": bootstrap, "subscribe": "remote", "archive": bucket})
    reader = TableReader(options)
    read = [rows.num_rows for part in reader.partitions() for rows in read_table(options, part)]  # type: ignore[arg-type]
    assert sum(read) == 100


@pytest.mark.parametrize("count", [1, 12])
def test_missing_or_short_files_in_object_store_are_found(bucket: str, count: int) -> None:
    store, objects = store_at(bucket), boto3.client("s3")
    sizes = {f"topic=a/date=2026-01-0{n % 2}/{n}.parquet": 10 + n for n in range(2 * count)}
    assert "there is no file s3://archives/topics/topic=a" in (store.problem_with(sizes) or "")
    for name, size in sizes.items():
        objects.put_object(Bucket="archives", Key=f"topics/{name}", Body=bytes(size))
    assert store.problem_with(sizes) is None
    [name, *_] = sizes
    objects.put_object(Bucket="archives", Key=f"topics/{name}", Body=bytes(3))
    assert f"{name} has 3 bytes, not 10" in (store.problem_with(sizes) or "")
    objects.delete_object(Bucket="archives", Key=f"topics/{name}")
    assert f"there is no file {bucket}/{name}" in (store.problem_with(sizes) or "")


def test_object_store_with_other_files_is_not_made_an_archive(bucket: str) -> None:
    """A vacuum of the table would delete them."""
    boto3.client("s3").put_object(Bucket=BUCKET, Key="topics/photo.jpg", Body=b"x")
    with pytest.raises(ArchiveError, match="is not empty and not an archive"):
        ArchiveTable.at(bucket).view_or_create()
    assert ArchiveTable.at(f"s3://{BUCKET}/others").view_or_create().version == 0


@pytest.mark.parametrize("is_remote", [False, True])
def test_archive_is_created_after_a_creation_that_was_killed(
    bucket: str, tmp_path: Path, is_remote: bool
) -> None:
    place = bucket if is_remote else str(tmp_path / "archive")
    if is_remote:
        boto3.client("s3").put_object(Bucket=BUCKET, Key="topics/_delta_log/_commit_1.json.tmp", Body=b"{")
    else:
        (tmp_path / "archive" / "_delta_log").mkdir(parents=True)
        (tmp_path / "archive" / "_delta_log" / "_commit_1.json.tmp").write_bytes(b"{")
    assert ArchiveTable.at(place).view_or_create().version == 0
