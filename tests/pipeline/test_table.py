"""Archive and log read as one table, with a real Spark and a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from archive_helpers import START_MS, archive, delete, delete_records, job, make, produce
from in_process import InProcess
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline.archive.archiver import Archiver
from penstock.pipeline.archive.table import ArchiveTable
from penstock.pipeline.archive.table_source import TableReader, read_table
from penstock.pipeline.options import parse
from penstock.testing.process import BrokerProcess


@pytest.fixture
def bootstrap(penstock_session_broker: BrokerProcess) -> str:
    return penstock_session_broker.bootstrap


def load(spark: SparkSession, bootstrap: str, place: Path, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(subscribe=topic, archive=str(place), **options).load()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row.value.removeprefix(b"value ")) for row in frame.select("value").collect())


def truncated(spark: SparkSession, bootstrap: str, place: Path, topic: str) -> None:
    """Fill a topic: records 0 to 59 are archived, 0 to 29 are only there, 60 to 99 are only in the log."""
    make(bootstrap, topic)
    produce(bootstrap, topic, range(60))
    archive(spark, job(bootstrap, place, topic))
    for partition in (0, 1):
        delete_records(bootstrap, topic, partition, 15)
    produce(bootstrap, topic, range(60, 100))


def test_archive_and_log_form_one_table_without_gap_or_duplicate(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    place = tmp_path / "archive"
    truncated(spark, bootstrap, place, "whole")
    frame = load(spark, bootstrap, place, "whole", includeHeaders="true")
    assert frame.columns[-1] == "headers"
    assert numbers(frame) == list(range(100))
    for number in (3, 97):
        [row] = frame.where(f"value = 'value {number}'").collect()
        assert (bytes(row.key), row.topic, row.partition) == (b"key %d" % (number % 10), "whole", 1)
        assert (row.offset, bytes(row.headers[0].value)) == (number // 2, b"%d" % number)
        assert int(row.timestamp.timestamp() * 1000) == START_MS + number * 3_600_000
    few = load(spark, bootstrap, place, "whole", columns="offset,partition")
    assert few.columns == ["offset", "partition"]
    assert few.distinct().count() == 100


@pytest.fixture(scope="module")
def bounded(
    spark: SparkSession,
    penstock_session_broker: BrokerProcess,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Archive of the topic `bounded`, shared by the tests of bounds."""
    place = tmp_path_factory.mktemp("bounded") / "archive"
    truncated(spark, penstock_session_broker.bootstrap, place, "bounded")
    return place


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"startingOffsets": '{"bounded": {"0": 5, "1": -2}}'}, [n for n in range(100) if n % 2 or n >= 10]),
        ({"endingOffsets": '{"bounded": {"0": 5, "1": 40}}'}, [n for n in range(80) if n % 2 or n < 10]),
        ({"startingTimestamp": str(START_MS + 20 * 3_600_000)}, list(range(20, 100))),
        ({"startingTimestamp": str(START_MS + 95 * 3_600_000)}, list(range(95, 100))),
        ({"endingTimestamp": str(START_MS + 10 * 3_600_000)}, list(range(10))),
    ],
)
def test_bounds_lie_in_the_archive_or_in_the_log(
    spark: SparkSession,
    bootstrap: str,
    bounded: Path,
    options: dict[str, str],
    wanted: list[int],
) -> None:
    assert numbers(load(spark, bootstrap, bounded, "bounded", **options)) == wanted


def test_table_without_rows_in_archive_and_log_is_empty(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    place = tmp_path / "archive"
    truncated(spark, bootstrap, place, "emptied-table")
    make(bootstrap, "never-written")
    for options in ({}, {"inOrder": "true"}):
        assert load(spark, bootstrap, place, "never-written", **options).collect() == []
    none = '{"emptied-table": {"0": 50, "1": 50}}'
    assert load(spark, bootstrap, place, "emptied-table", startingOffsets=none).collect() == []


def test_fully_archived_and_truncated_topic_is_read(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    place, topic = tmp_path / "archive", "all-truncated"
    make(bootstrap, topic)
    produce(bootstrap, topic, range(60))
    archive(spark, job(bootstrap, place, topic))
    for partition in (0, 1):
        delete_records(bootstrap, topic, partition, 30)
    assert numbers(load(spark, bootstrap, place, topic)) == list(range(60))
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    assert reader.options(subscribe=topic).load().collect() == []


def test_rows_of_deleted_topic_are_not_rows_of_new_topic(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    place = tmp_path / "archive"
    truncated(spark, bootstrap, place, "anew")
    delete(bootstrap, "anew")
    make(bootstrap, "anew")
    produce(bootstrap, "anew", range(200, 220))
    assert numbers(load(spark, bootstrap, place, "anew")) == list(range(200, 220))
    archive(spark, job(bootstrap, place, "anew"))
    assert numbers(load(spark, bootstrap, place, "anew")) == list(range(200, 220))


def test_deleted_topic_is_read_from_archive(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    place = tmp_path / "archive"
    for numbers_ in (range(10), range(50, 80)):
        make(bootstrap, "departed")
        produce(bootstrap, "departed", numbers_)
        archive(spark, job(bootstrap, place, "departed"))
        delete(bootstrap, "departed")
    assert numbers(load(spark, bootstrap, place, "departed")) == list(range(50, 80))
    late = load(spark, bootstrap, place, "departed", startingTimestamp=str(START_MS + 70 * 3_600_000))
    assert numbers(late) == list(range(70, 80))
    with pytest.raises(
        PySparkException, match="there is no topic 'unheard', neither in the cluster nor in the archive"
    ):
        load(spark, bootstrap, place, "unheard").count()


def test_partitions_of_deleted_archived_topic_can_be_assigned(bootstrap: str, tmp_path: Path) -> None:
    place = tmp_path / "archive"
    make(bootstrap, "assigned")
    produce(bootstrap, "assigned", range(30))
    list(Archiver(job(bootstrap, place, "assigned"), InProcess(), pytest.fail).run())
    delete(bootstrap, "assigned")
    given = {
        "assign": '{"assigned": [1]}',
        "startingOffsets": '{"assigned": {"1": 5}}',
        "archive": str(place),
    }
    options = parse({"bootstrap": bootstrap, **given})
    [part] = TableReader(options).partitions()
    found = [row["offset"] for rows in read_table(options, part) for row in rows.to_pylist()]  # type: ignore[arg-type]
    assert found == list(range(5, 15))


def test_records_truncated_during_read_are_found_in_archive(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    place = tmp_path / "archive"
    truncated(spark, bootstrap, place, "moving")
    options = parse({"bootstrap": bootstrap, "subscribe": "moving", "archive": str(place)})
    partitions = TableReader(options).partitions()
    archive(spark, job(bootstrap, place, "moving", truncates=True, grace_ms=-1000))
    produce(bootstrap, "moving", range(100, 110))
    found = [
        (row["partition"], row["offset"])
        for partition in partitions
        for rows in read_table(options, partition)  # type: ignore[arg-type]
        for row in rows.to_pylist()
    ]
    assert sorted(found) == [(partition, offset) for partition in (0, 1) for offset in range(50)]


def test_records_deleted_before_archiving_are_an_error_or_skipped(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    place = tmp_path / "archive"
    truncated(spark, bootstrap, place, "holed")
    for partition in (0, 1):
        delete_records(bootstrap, "holed", partition, 40)
    with pytest.raises(PySparkException, match="is archived up to 30, but its log starts at 40"):
        load(spark, bootstrap, place, "holed").count()
    left = load(spark, bootstrap, place, "holed", failOnDataLoss="false")
    assert numbers(left) == [*range(60), *range(80, 100)]


def test_stream_starts_in_archive_and_continues_in_log(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    place = tmp_path / "archive"
    truncated(spark, bootstrap, place, "flowing")

    def run() -> list[int]:
        reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "40", "archive": str(place)}
        query = (
            reader.options(subscribe="flowing", **options)
            .load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        return numbers(spark.read.parquet(str(tmp_path / "out")))

    assert run() == list(range(100))
    produce(bootstrap, "flowing", range(100, 120))
    archive(spark, job(bootstrap, place, "flowing", truncates=True, grace_ms=-1000))
    assert run() == list(range(120))


def test_missing_archive_is_explained(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    make(bootstrap, "unarchived")
    with pytest.raises(PySparkException, match="there is no archive at"):
        load(spark, bootstrap, tmp_path / "nothing", "unarchived").count()


def test_table_reorganised_by_other_tools_is_read_correctly(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    place = tmp_path / "archive"
    truncated(spark, bootstrap, place, "tidied")
    DeltaTable(str(place)).optimize.compact()
    assert (
        len(ArchiveTable.at(str(place)).view().files("tidied")) == 3
    )  # one file for each day, with both partitions
    assert numbers(load(spark, bootstrap, place, "tidied")) == list(range(100))
    archive(spark, job(bootstrap, place, "tidied"))
    assert numbers(load(spark, bootstrap, place, "tidied")) == list(range(100))
