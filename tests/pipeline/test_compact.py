"""One row for each key, on a real Spark and a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from archive_helpers import archive, job, make, produce
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.pipeline.compact import CompactJob, Keep, compact
from penstock.pipeline.options import parse
from penstock.pipeline.table_writing import TableRefused
from penstock.testing.process import BrokerProcess

pytestmark = [pytest.mark.process, pytest.mark.spark]


@pytest.fixture
def bootstrap(penstock_session_broker: BrokerProcess) -> str:
    return penstock_session_broker.bootstrap


def values(place: Path) -> dict[bytes, bytes]:
    rows = DeltaTable(str(place)).to_pyarrow_table().to_pylist()
    found = {row["key"]: row["value"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_the_last_value_of_each_key_is_kept_and_a_deletion_deletes(
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


def test_the_first_of_those_that_are_alike_is_kept(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    make(bootstrap, "doubled", 1)
    for _ in range(3):
        produce(bootstrap, "doubled", range(20), 1)
    options = parse({"bootstrap": bootstrap, "subscribe": "doubled"})
    assert compact(spark, CompactJob(options, str(tmp_path / "once"), "key, value", Keep.FIRST)) == 20
    offsets = DeltaTable(str(tmp_path / "once")).to_pyarrow_table()["offset"].to_pylist()
    assert sorted(offsets) == list(range(20))


def test_a_place_that_holds_something_else_is_left_alone(
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
