"""Compaction to one row for each key, with a real Spark and a real broker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from archive_helpers import archive, job, make, produce
from confluent_kafka import Producer
from deaths import Killed
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.pipeline.compact import CompactJob, Keep, compact
from penstock.pipeline.delta_writer import TableRefused
from penstock.pipeline.options import parse
from penstock.testing.process import BrokerProcess


@pytest.fixture
def bootstrap(penstock_session_broker: BrokerProcess) -> str:
    return penstock_session_broker.bootstrap


def values(place: Path) -> dict[bytes, bytes]:
    rows = DeltaTable(str(place)).to_pyarrow_table().to_pylist()
    found = {row["key"]: row["value"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_last_value_of_each_key_is_kept_and_tombstones_delete(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    make(bootstrap, "states")
    produce(bootstrap, "states", range(50))
    archive(spark, job(bootstrap, tmp_path / "archive", "states"))
    produce(bootstrap, "states", range(50, 97))
    options = parse({"bootstrap": bootstrap, "subscribe": "states", "archive": str(tmp_path / "archive")})
    work = CompactJob(options, str(tmp_path / "states"))
    assert compact(spark, work) == 10
    last = {b"key %d" % (number % 10): b"value %d" % number for number in range(87, 97)}
    assert values(tmp_path / "states") == last
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("states", None, b"key 3", partition=1)
    producer.produce("states", b"no key at all")
    assert producer.flush(30) == 0
    assert compact(spark, work) == 9
    del last[b"key 3"]
    assert values(tmp_path / "states") == last


def test_first_of_duplicates_is_kept(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    make(bootstrap, "doubled", 1)
    for _ in range(3):
        produce(bootstrap, "doubled", range(20), 1)
    options = parse({"bootstrap": bootstrap, "subscribe": "doubled"})
    assert compact(spark, CompactJob(options, str(tmp_path / "once"), "key, value", Keep.FIRST)) == 20
    offsets = DeltaTable(str(tmp_path / "once")).to_pyarrow_table()["offset"].to_pylist()
    assert sorted(offsets) == list(range(20))


def test_topic_without_records_makes_a_table_without_rows(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    make(bootstrap, "nothing-to-compact")
    options = parse({"bootstrap": bootstrap, "subscribe": "nothing-to-compact"})
    assert compact(spark, CompactJob(options, str(tmp_path / "table"))) == 0
    assert values(tmp_path / "table") == {}


@pytest.mark.parametrize("is_committed", [False, True])
def test_driver_death_at_commit_leaves_table_unchanged_until_next_run(
    spark: SparkSession, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    topic, place = f"committed-{is_committed}", tmp_path / "table"
    make(bootstrap, topic)
    produce(bootstrap, topic, range(20))
    work = CompactJob(parse({"bootstrap": bootstrap, "subscribe": topic}), str(place))
    compact(spark, work)
    first = values(place)
    produce(bootstrap, topic, range(20, 40))
    commit = DeltaTable.create_write_transaction

    def dying(*arguments: Any, **options: Any) -> None:
        if is_committed:
            commit(*arguments, **options)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", dying)
        with pytest.raises(Killed):
            compact(spark, work)
    last = {b"key %d" % (number % 10): b"value %d" % number for number in range(30, 40)}
    assert values(place) == (last if is_committed else first)
    assert compact(spark, work) == 10
    assert values(place) == last


def test_files_unreferenced_for_a_week_are_deleted(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    make(bootstrap, "tidy")
    produce(bootstrap, "tidy", range(20))
    work = CompactJob(parse({"bootstrap": bootstrap, "subscribe": "tidy"}), str(tmp_path / "table"))
    compact(spark, work)
    of_a_killed_run, recent = tmp_path / "table" / "killed.parquet", tmp_path / "table" / "recent.parquet"
    recent.touch()
    of_a_killed_run.touch()
    os.utime(of_a_killed_run, (0, 0))
    compact(spark, work)
    assert not of_a_killed_run.exists()
    assert recent.exists()
    assert len(values(tmp_path / "table")) == 10


def test_location_with_other_content_is_not_changed(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    make(bootstrap, "misplaced")
    archive(spark, job(bootstrap, tmp_path / "archive", "misplaced"))
    options = parse({"bootstrap": bootstrap, "subscribe": "misplaced"})
    with pytest.raises(TableRefused, match="has other columns"):
        compact(spark, CompactJob(options, str(tmp_path / "archive")))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(TableRefused, match="is not empty"):
        compact(spark, CompactJob(options, str(tmp_path / "full")))
