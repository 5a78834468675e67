"""`.format("penstock")` with a real Spark and a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from archive_helpers import make
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.records.content import content_crc
from penstock.testing.process import BrokerProcess

START_MS = 1_700_000_000_000


@pytest.fixture
def bootstrap(penstock_session_broker: BrokerProcess) -> str:
    return penstock_session_broker.bootstrap


def produce(bootstrap: str, topic: str, numbers: range, partitions: int = 2) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in numbers:
        producer.produce(
            topic,
            b"%d" % number,
            b"k%d" % number,
            partition=number % partitions,
            timestamp=START_MS + number * 1000,
        )
    assert producer.flush(60) == 0


def load(spark: SparkSession, bootstrap: str, **options: str) -> DataFrame:
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**options).load()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_topic_is_a_table_with_columns_of_sparks_own_source(spark: SparkSession, bootstrap: str) -> None:
    make(bootstrap, "table")
    produce(bootstrap, "table", range(1000))
    frame = load(spark, bootstrap, subscribe="table")
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert numbers(frame) == list(range(1000))
    row = frame.where("partition = 1 and offset = 7").collect()[0]
    assert (bytes(row.value), bytes(row.key), row.topic, row.timestampType) == (b"15", b"k15", "table", 0)
    assert int(row.timestamp.timestamp() * 1000) == START_MS + 15_000
    with_headers = load(spark, bootstrap, subscribe="table", includeHeaders="true")
    assert with_headers.columns[-1] == "headers"
    assert with_headers.where("headers is not null").count() == 0
    few = load(spark, bootstrap, subscribe="table", columns="offset,partition")
    assert few.columns == ["offset", "partition"]
    assert few.count() == 1000
    measured = load(spark, bootstrap, subscribe="table", columns="value,size,crc")
    assert {row.size for row in measured.where("length(value) = 3").collect()} == {7}
    [row] = measured.where("value = '15'").collect()
    assert (row.size, row.crc) == (5, content_crc(b"k15", b"15"))


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"startingOffsets": '{"TOPIC": {"0": 10, "1": -2}}'}, [n for n in range(100) if n % 2 or n >= 20]),
        ({"endingOffsets": '{"TOPIC": {"0": 5, "1": 0}}'}, [0, 2, 4, 6, 8]),
        ({"startingTimestamp": str(START_MS + 90_000)}, list(range(90, 100))),
        ({"endingTimestamp": str(START_MS + 10_000)}, list(range(10))),
        ({"minPartitions": "7"}, list(range(100))),
    ],
)
def test_start_and_end_options_select_rows(
    spark: SparkSession, bootstrap: str, topic_name: str, options: dict[str, str], wanted: list[int]
) -> None:
    make(bootstrap, topic_name)
    produce(bootstrap, topic_name, range(100))
    named = {name: value.replace("TOPIC", topic_name) for name, value in options.items()}
    frame = load(spark, bootstrap, subscribe=topic_name, **named)
    assert numbers(frame) == wanted
    if "minPartitions" in options:
        assert frame.rdd.getNumPartitions() >= 7


def test_topics_are_subscribed_to_by_pattern_and_assigned_by_partition(
    spark: SparkSession, bootstrap: str
) -> None:
    for name in ("like-a", "like-b", "unlike"):
        make(bootstrap, name)
        produce(bootstrap, name, range(10))
    counted = load(spark, bootstrap, subscribePattern="like-.*").groupBy("topic").count().collect()
    assert {row.topic: row["count"] for row in counted} == {"like-a": 10, "like-b": 10}
    assert numbers(load(spark, bootstrap, assign='{"unlike": [1]}')) == [1, 3, 5, 7, 9]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "subscribe, subscribePattern and assign"),
        ({"subscribe": "a", "assign": "{}"}, "only one"),
        ({"subscribe": "missing-topic"}, "there is no topic"),
        ({"subscribe": "a", "startingOffset": "1"}, "unknown option"),
        ({"subscribe": "a", "startingOffsets": "soon"}, "not valid JSON"),
        ({"subscribe": "a", "columns": "offset,color"}, "columns: give some of"),
        ({"subscribe": "a", "minPartitions": "many"}, "give a whole number"),
        ({"subscribePattern": "("}, "not a valid regular expression"),
    ],
)
def test_wrong_option_is_explained(
    spark: SparkSession, bootstrap: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        load(spark, bootstrap, **options).count()


def test_filters_are_pushed_down(spark: SparkSession, bootstrap: str) -> None:
    make(bootstrap, "filtered")
    produce(bootstrap, "filtered", range(100))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(spark, bootstrap, subscribe="filtered", filterPushdown="true")
        chosen = frame.where("partition = 1 and offset >= 10 and offset < 12")
        assert numbers(chosen) == [21, 23]
        assert chosen.rdd.getNumPartitions() == 1
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def test_topics_without_records_are_tables_without_rows(spark: SparkSession, bootstrap: str) -> None:
    make(bootstrap, "empty")
    make(bootstrap, "emptied")
    produce(bootstrap, "emptied", range(10))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.delete_records([TopicPartition("emptied", n, 5) for n in range(2)]).values():
        done.result(30)
    for options in (
        {"subscribe": "empty"},
        {"subscribe": "emptied"},
        {"subscribe": "empty,emptied", "includeHeaders": "true"},
        {"subscribePattern": "no-topic-has-this-name"},
        {"subscribe": "emptied", "endingOffsets": '{"emptied": {"0": 5, "1": 5}}'},
    ):
        assert load(spark, bootstrap, **options).collect() == []
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(spark, bootstrap, subscribe="emptied", filterPushdown="true")
        assert frame.where("partition = 7").count() == 0
        assert frame.where("topic = 'another'").collect() == []
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def stream(spark: SparkSession, bootstrap: str, directory: Path, **options: str) -> list[int]:
    """Run a query up to the current end. Returns all rows it has written so far."""
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    query = (
        reader.options(**{"startingOffsets": "earliest", **options})
        .load()
        .writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    batches[:] = [
        progress["numInputRows"] for progress in map(json.loads, (p.json for p in query.recentProgress))
    ]
    return numbers(spark.read.parquet(str(directory / "out")))


batches: list[int] = []


def test_stream_continues_from_checkpoint_with_new_partitions(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    make(bootstrap, "stream")
    produce(bootstrap, "stream", range(100))
    options = {"subscribe": "stream", "maxOffsetsPerTrigger": "30"}
    assert stream(spark, bootstrap, tmp_path, **options) == list(range(100))
    assert max(batches) <= 30
    produce(bootstrap, "stream", range(100, 150))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions("stream", 3)])["stream"].result(30)
    produce(bootstrap, "stream", range(150, 180), 3)
    assert stream(spark, bootstrap, tmp_path, **options) == list(range(180))
    assert stream(spark, bootstrap, tmp_path, **options) == list(range(180))


def test_stream_continues_after_one_topic_is_deleted(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    for topic in ("stays", "leaves"):
        make(bootstrap, topic)
    produce(bootstrap, "stays", range(50))
    produce(bootstrap, "leaves", range(50, 80))
    options = {"subscribe": "stays,leaves", "failOnDataLoss": "false"}
    assert stream(spark, bootstrap, tmp_path, **options) == list(range(80))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics(["leaves"])["leaves"].result(30)
    produce(bootstrap, "stays", range(80, 90))
    with pytest.raises(PySparkException, match="topic leaves does not exist any more"):
        stream(spark, bootstrap, tmp_path, subscribe="stays,leaves")
    assert stream(spark, bootstrap, tmp_path, **options) == list(range(90))
    assert stream(spark, bootstrap, tmp_path, **options) == list(range(90))


def test_stream_reports_loss_if_topic_is_created_again(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    make(bootstrap, "again")
    produce(bootstrap, "again", range(50))
    assert stream(spark, bootstrap, tmp_path, subscribe="again") == list(range(50))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics(["again"])["again"].result(30)
    make(bootstrap, "again")
    produce(bootstrap, "again", range(100, 200))
    with pytest.raises(PySparkException, match="deleted and created again"):
        stream(spark, bootstrap, tmp_path, subscribe="again")
    assert stream(spark, bootstrap, tmp_path, subscribe="again", failOnDataLoss="false") == [
        *range(50),
        *range(100, 200),
    ]
