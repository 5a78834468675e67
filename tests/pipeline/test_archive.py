"""Archiving to a Delta table with a real Spark and a real broker."""

from __future__ import annotations

import os
from pathlib import Path

import archive_helpers
import pytest
from archive_helpers import START_MS, archive, delete, job, make, make_view, numbers, produce, rows
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.pipeline.archive.archiver import Archiver
from penstock.pipeline.archive.table import ArchiveError, ArchiveTable
from penstock.pipeline.options import OptionError
from penstock.testing.process import BrokerProcess


@pytest.fixture
def bootstrap(penstock_session_broker: BrokerProcess) -> str:
    return penstock_session_broker.bootstrap


def test_repeated_runs_archive_every_record_once(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    make(bootstrap, "archived")
    produce(bootstrap, "archived", range(100))
    work = job(bootstrap, tmp_path / "archive", "archived")
    done, warnings = archive(spark, work)
    assert (done.rows, done.offsets, warnings) == (100, 100, [])
    assert archive(spark, work)[0].rows == 0
    produce(bootstrap, "archived", range(100, 130))
    assert archive(spark, work)[0].rows == 30
    found = rows(tmp_path / "archive")
    assert numbers(found) == list(range(130))
    row = next(row for row in found if row["value"] == b"value 77")
    assert (row["key"], row["topic"], row["partition"], row["offset"]) == (b"key 7", "archived", 1, 38)
    assert row["headers"] == [{"key": "number", "value": b"77"}]
    assert int(row["timestamp"].timestamp() * 1000) == START_MS + 77 * 3_600_000
    assert row["date"] == row["timestamp"].date()


def test_archiver_without_new_records_does_not_start_spark(bootstrap: str, tmp_path: Path) -> None:
    make(bootstrap, "idle")

    def no_spark() -> SparkSession:
        raise AssertionError("there is nothing to do")

    archiver = Archiver(job(bootstrap, tmp_path / "archive", "idle"), no_spark, pytest.fail)
    assert [done.rows for done in archiver.run()] == [0]


def test_topic_created_again_is_archived_separately(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    make(bootstrap, "reborn")
    produce(bootstrap, "reborn", range(20))
    work = job(bootstrap, tmp_path / "archive", "reborn")
    archive(spark, work)
    delete(bootstrap, "reborn")
    make(bootstrap, "reborn")
    produce(bootstrap, "reborn", range(100, 150))
    assert archive(spark, work)[0].rows == 50
    found = rows(tmp_path / "archive")
    assert numbers(found) == [*range(20), *range(100, 150)]
    assert len({row["topic_id"] for row in found}) == 2


def test_run_in_small_rounds_archives_all(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    make(bootstrap, "rounds")
    produce(bootstrap, "rounds", range(100))
    work = job(bootstrap, tmp_path / "archive", "rounds", offsets_a_round=30)
    seen = list(Archiver(work, lambda: spark, pytest.fail).run())
    assert [done.offsets for done in seen] == [30, 60, 90, 100]
    assert [done.offsets_left for done in seen] == [70, 40, 10, 0]
    assert numbers(rows(tmp_path / "archive")) == list(range(100))


def test_archiver_retries_after_another_commits_first(
    spark: SparkSession, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(bootstrap, "contended")
    produce(bootstrap, "contended", range(50))
    work = job(bootstrap, tmp_path / "archive", "contended")
    commit = ArchiveTable.commit

    def late(*arguments: object) -> None:
        monkeypatch.setattr(ArchiveTable, "commit", commit)
        archive(spark, work)
        produce(bootstrap, "contended", range(50, 60))
        commit(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ArchiveTable, "commit", late)
    assert archive(spark, work)[0].rows == 0
    assert numbers(rows(tmp_path / "archive")) == list(range(50))
    assert archive(spark, work)[0].rows == 10
    assert numbers(rows(tmp_path / "archive")) == list(range(60))


def test_only_committed_transactions_are_archived(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    make(bootstrap, "transactional", 1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "archived-transactions"})
    producer.init_transactions(30)
    for first, commits in ((0, True), (10, False), (20, True)):
        producer.begin_transaction()
        for number in range(first, first + 10):
            producer.produce("transactional", b"value %d" % number)
        producer.flush()
        if commits:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce("transactional", b"value 99")
    producer.flush()
    work = job(bootstrap, tmp_path / "archive", "transactional")
    assert archive(spark, work)[0].rows == 20
    producer.commit_transaction(30)
    assert archive(spark, work)[0].rows == 1
    assert numbers(rows(tmp_path / "archive")) == [*range(10), *range(20, 30), 99]


def test_truncation_waits_for_grace_period(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    make(bootstrap, "truncated")
    produce(bootstrap, "truncated", range(50))
    place = tmp_path / "archive"
    archive(spark, job(bootstrap, place, "truncated", truncates=True))
    assert archive_helpers.starts(bootstrap, "truncated") == {0: 0, 1: 0}
    archive(spark, job(bootstrap, place, "truncated", truncates=True, grace_ms=-1000))
    assert archive_helpers.starts(bootstrap, "truncated") == {0: 25, 1: 25}
    produce(bootstrap, "truncated", range(50, 60))
    archive(spark, job(bootstrap, place, "truncated"))
    assert numbers(rows(place)) == list(range(60))


def test_records_deleted_before_archiving_are_reported(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    make(bootstrap, "too-late", 1)
    produce(bootstrap, "too-late", range(10), 1)
    work = job(bootstrap, tmp_path / "archive", "too-late")
    archive(spark, work)
    produce(bootstrap, "too-late", range(10, 30), 1)
    archive_helpers.delete_records(bootstrap, "too-late", 0, 20)
    _, [warning] = archive(spark, work)
    assert "offsets 10 to 20 were deleted before they were archived" in warning
    assert numbers(rows(tmp_path / "archive")) == [*range(10), *range(20, 30)]


def test_location_without_archive_is_refused_and_unchanged(bootstrap: str, tmp_path: Path) -> None:
    make(bootstrap, "refused")
    produce(bootstrap, "refused", range(10))

    def complaint(place: Path) -> str:
        before = sorted(os.walk(place))
        with pytest.raises(ArchiveError) as refused:
            list(Archiver(job(bootstrap, place, "refused"), pytest.fail, pytest.fail).run())
        assert sorted(os.walk(place)) == before
        assert "\n" not in str(refused.value)
        return str(refused.value)

    full = tmp_path / "full"
    full.mkdir()
    (full / "holiday.jpg").write_bytes(b"sun")
    assert "is not empty and not an archive" in complaint(full)
    broken = tmp_path / "broken" / "_delta_log"
    broken.mkdir(parents=True)
    (broken / f"{0:020}.json").write_text("{nothing")
    assert "cannot be read" in complaint(broken.parent)
    import pyarrow as pa

    foreign = tmp_path / "foreign"
    DeltaTable.create(str(foreign), pa.schema([("name", pa.string())]))
    assert "is not an archive" in complaint(foreign)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises((ArchiveError, OSError)):
        list(Archiver(job(bootstrap, file, "refused"), pytest.fail, pytest.fail).run())


def test_missing_topic_fails_before_anything_is_created(bootstrap: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="there is no topic"):
        list(Archiver(job(bootstrap, tmp_path / "archive", "nowhere"), pytest.fail, pytest.fail).run())
    assert not (tmp_path / "archive").exists()


def test_an_archive_of_a_view_has_its_records_at_their_offsets(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    make(bootstrap, "sold")
    produce(bootstrap, "sold", range(100))
    make_view(bootstrap, "sold.sevens", "sold", 'key == "key 7"')
    work = job(bootstrap, tmp_path / "archive", "sold.sevens")
    done, warnings = archive(spark, work)
    assert (done.rows, warnings) == (10, [])
    found = rows(tmp_path / "archive")
    assert numbers(found) == list(range(7, 100, 10))
    assert archive(spark, work)[0].rows == 0
    produce(bootstrap, "sold", range(100, 130))
    assert archive(spark, work)[0].rows == 3
    read = spark.read.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    values = [row.value for row in read.option("subscribe", "sold.sevens").load().collect()]
    assert sorted(int(value.split()[1]) for value in values) == list(range(7, 130, 10))
