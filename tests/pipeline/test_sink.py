"""Batch and streaming sink with a real Spark and a real broker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit
from sink_helpers import committed, new_topic, reading

from penstock.testing.process import BrokerProcess


@pytest.fixture
def bootstrap(penstock_session_broker: BrokerProcess) -> str:
    return penstock_session_broker.bootstrap


def numbers(spark: SparkSession, count: int, tasks: int = 2) -> DataFrame:
    return spark.range(0, count, 1, tasks).select(
        col("id").cast("string").alias("key"), col("id").cast("string").alias("value")
    )


def write(frame: DataFrame, bootstrap: str, **options: str) -> None:
    writer = frame.write.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    writer.options(**options).mode("append").save()


def load(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    return reader.option("subscribe", topic).option("includeHeaders", "true").load()


def test_rows_are_partitioned_by_key_as_in_kafka_clients(spark: SparkSession, bootstrap: str) -> None:
    ours, theirs = new_topic(bootstrap, 5), new_topic(bootstrap, 5)
    write(numbers(spark, 1000), bootstrap, topic=ours, **{"kafka.compression.type": "lz4"})
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for number in range(1000):
        producer.produce(theirs, b"%d" % number, b"%d" % number)
    assert producer.flush(30) == 0
    places = [
        {(bytes(row.key), row.partition) for row in load(spark, bootstrap, topic).collect()}
        for topic in (ours, theirs)
    ]
    assert len(places[0]) == 1000
    assert places[0] == places[1]


def test_all_columns_of_spark_s_own_sink_are_written(spark: SparkSession, bootstrap: str) -> None:
    one, other = new_topic(bootstrap, 3), new_topic(bootstrap, 3)
    rows = [
        (one, None, bytearray(b"v"), 2, [("name", bytearray(b"h")), ("name", None)], "left out"),
        (other, bytearray(b"k"), None, 0, None, "left out"),
    ]
    schema = (
        "topic string, key binary, value binary, partition int, "
        "headers array<struct<key string, value binary>>, other string"
    )
    write(spark.createDataFrame(rows, schema), bootstrap)
    [first] = load(spark, bootstrap, one).collect()
    assert (first.key, bytes(first.value), first.partition) == (None, b"v", 2)
    assert [(each.key, each.value and bytes(each.value)) for each in first.headers] == [
        ("name", b"h"),
        ("name", None),
    ]
    [second] = load(spark, bootstrap, other).collect()
    assert (bytes(second.key), second.value, second.partition, second.headers) == (b"k", None, 0, None)


def test_rows_without_key_use_all_partitions(spark: SparkSession, bootstrap: str) -> None:
    topic = new_topic(bootstrap, 4)
    write(numbers(spark, 8000, 2).drop("key"), bootstrap, topic=topic)
    counted = load(spark, bootstrap, topic).groupBy("partition").count().collect()
    assert sum(row["count"] for row in counted) == 8000
    assert min(row["count"] for row in counted) >= 1000


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ({"key": "string"}, {"topic": "t"}, "the column 'value' is missing"),
        ({"value": "string"}, {}, "there is no topic to write to"),
        ({"value": "bigint"}, {"topic": "t"}, "'value' must be string or binary, not bigint"),
        ({"value": "string", "partition": "string"}, {"topic": "t"}, "'partition' must be int"),
        ({"value": "string", "headers": "string"}, {"topic": "t"}, "'headers' must be array<struct"),
        ({"value": "string"}, {"topic": "not-there"}, "there is no topic 'not-there'"),
        ({"value": "string"}, {"topic": "t", "kafka.transactional.id": "x"}, "unknown option"),
        ({"value": "string"}, {"topic": "t", "kafka.compression.type": "rar"}, "give none or gzip or"),
    ],
)
def test_invalid_options_and_columns_fail_before_any_write(
    spark: SparkSession, bootstrap: str, columns: dict[str, str], options: dict[str, str], said: str
) -> None:
    if options.get("topic") == "t":
        options = options | {"topic": new_topic(bootstrap)}
    frame = spark.range(10).select(*(lit(None).cast(kind).alias(name) for name, kind in columns.items()))
    with pytest.raises(PySparkException, match=said):
        write(frame, bootstrap, **options)
    if "topic" in options and options["topic"] != "not-there":
        assert committed(bootstrap, options["topic"]) == []


def test_overwrite_and_rows_without_partition_are_refused(spark: SparkSession, bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    frame = numbers(spark, 10)
    writer = frame.write.format("penstock").options(bootstrap=bootstrap, topic=topic).mode("overwrite")
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        writer.save()
    with pytest.raises(PySparkException, match="names partition 7"):
        write(frame.withColumn("partition", lit(7)), bootstrap, topic=topic)
    with pytest.raises(PySparkException, match="a row has no topic"):
        write(frame.withColumn("topic", lit(None).cast("string")), bootstrap)
    assert committed(bootstrap, topic) == []


def stream(spark: SparkSession, bootstrap: str, source: str, target: str, checkpoint: Path) -> None:
    """Run a stream over the current records, in batches of 100 rows."""
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    query = (
        reader.options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="100")
        .load()
        .select("key", "value")
        .writeStream.format("penstock")
        .options(topic=target, checkpointLocation=str(checkpoint))
        .option("kafka.bootstrap.servers", bootstrap)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(100)


def test_stream_is_written_once_if_last_batch_is_run_again(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    source, target = new_topic(bootstrap), new_topic(bootstrap)
    checkpoint = tmp_path / "checkpoint"
    write(numbers(spark, 150), bootstrap, topic=source)
    wanted = [*map(str, range(150))]
    stream(spark, bootstrap, source, target, checkpoint)
    assert committed(bootstrap, target) == sorted(wanted)
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (last, last.with_name(f".{last.name}.crc")):
        path.unlink(missing_ok=True)
    write(numbers(spark, 10), bootstrap, topic=source)
    stream(spark, bootstrap, source, target, checkpoint)
    assert committed(bootstrap, target) == sorted([*wanted, *map(str, range(10))])


def test_missing_topic_of_a_stream_is_named_with_create_command(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    source = new_topic(bootstrap)
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    frame = reader.options(subscribe=source, startingOffsets="earliest").load().select("key", "value")
    writer = frame.writeStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    query = writer.options(topic="not-there", checkpointLocation=str(tmp_path / "checkpoint")).start()
    fix = f"create it with `penstock topic create not-there --bootstrap {bootstrap}`"
    said = f"there is no topic 'not-there'; {fix}"
    try:
        with pytest.raises(PySparkException, match=re.escape(said)):
            query.awaitTermination(100)
        assert said in str(query.exception())
    finally:
        query.stop()


def test_committed_reader_sees_no_rows_of_failed_stream(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    source, target = new_topic(bootstrap), new_topic(bootstrap)
    write(numbers(spark, 50).withColumn("partition", lit(0)), bootstrap, topic=source)
    write(numbers(spark, 50).withColumn("partition", lit(1)), bootstrap, topic=source)
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    frame = reader.options(subscribe=source, startingOffsets="earliest").load()
    # One of two tasks has a row that is rejected.
    broken = frame.selectExpr("key", "value", "if(partition = 1 and offset = 30, 9, 0) as partition")
    writer = broken.writeStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    query = (
        writer.options(topic=target, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(PySparkException, match="names partition 9"):
        query.awaitTermination(100)
    assert committed(bootstrap, target) == []
    with reading(bootstrap, target) as consumer:
        assert consumer.poll(0.2) is None
