"""Spark's own Kafka connector, unmodified: batch and streaming reads and writes. `main.py BOOTSTRAP TOPIC`."""

from __future__ import annotations

import os
import sys
import tempfile

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

from pyspark.sql import DataFrame, SparkSession

ROWS, TASKS, PARTITIONS = 60_000, 12, 3
BROKERS = (1, 2, 3)


def main() -> None:
    bootstrap, topic = sys.argv[1:]
    copied = f"{topic}-copied"
    session = SparkSession.builder.master("local[2]").appName("foreign")
    for name, value in {
        "spark.driver.extraClassPath": "jars/*",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.log.level": "ERROR",
    }.items():
        session = session.config(name, value)
    spark = session.getOrCreate()
    create(spark, bootstrap, topic, copied)
    write(spark, bootstrap, topic)
    read(spark, bootstrap, topic)
    stream(spark, bootstrap, topic, copied)
    spark.stop()


def create(spark: SparkSession, bootstrap: str, *topics: str) -> None:
    java = spark._jvm.java.util
    admin_package = spark._jvm.org.apache.kafka.clients.admin
    settings = java.HashMap()
    settings.put("bootstrap.servers", bootstrap)
    admin = admin_package.Admin.create(settings)
    replicas = java.ArrayList()
    for broker in BROKERS:
        replicas.add(broker)
    assignment = java.HashMap()
    for partition in range(PARTITIONS):
        assignment.put(partition, replicas)
    wanted = java.ArrayList()
    for topic in topics:
        wanted.add(admin_package.NewTopic(topic, assignment))
    admin.createTopics(wanted).all().get()
    admin.close()


def write(spark: SparkSession, bootstrap: str, topic: str) -> None:
    rows = spark.range(0, ROWS, 1, TASKS).selectExpr(
        "cast(id as string) as key",
        "concat('value ', id) as value",
        "array(struct('number' as key, cast(cast(id as string) as binary) as value)) as headers",
    )
    print("PRODUCING", flush=True)
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    rows.write.format("kafka").options(**options).save()
    print(f"{ROWS} rows are written by a batch", flush=True)


def load(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return reader.option("subscribe", topic).options(**options).load()


def read(spark: SparkSession, bootstrap: str, topic: str) -> None:
    frame = load(
        spark, bootstrap, topic, includeHeaders="true", **{"kafka.isolation.level": "read_committed"}
    )
    check_rows(frame, "by a batch")
    wrong = frame.where("cast(headers[0].value as string) != cast(key as string) or timestamp is null")
    expect(wrong.count() == 0, "headers and times are those of the rows")
    later = load(
        spark,
        bootstrap,
        topic,
        startingTimestamp="4102444800000",
        startingOffsetsByTimestampStrategy="latest",
    )
    expect(later.count() == 0, "nothing was written after 2100")
    some = load(spark, bootstrap, topic, endingOffsets=f'{{"{topic}": {{"0": 10, "1": 0, "2": 0}}}}')
    expect(some.count() == 10, "offsets end where they are told to")


def stream(spark: SparkSession, bootstrap: str, topic: str, copied: str) -> None:
    with tempfile.TemporaryDirectory() as checkpoint:
        for _ in range(2):  # the second run starts from the checkpoint and finds no new rows
            reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
            rows = reader.options(
                subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=str(ROWS // 2)
            ).load()
            writer = rows.select("key", "value").writeStream.format("kafka")
            query = (
                writer.option("kafka.bootstrap.servers", bootstrap)
                .options(topic=copied, checkpointLocation=checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        check_rows(load(spark, bootstrap, copied), "by a stream")


def check_rows(frame: DataFrame, how: str) -> None:
    """Write at least once, as Spark guarantees for this sink."""
    found = frame.selectExpr("cast(key as string) as key", "cast(value as string) as value").distinct()
    expect(found.where("value = concat('value ', key)").count() == ROWS, f"all rows are read {how}")
    print(f"{ROWS} rows are read {how}", flush=True)


def expect(is_so: bool, what: str) -> None:
    if not is_so:
        raise AssertionError(f"it is not so that {what}")


if __name__ == "__main__":
    main()
