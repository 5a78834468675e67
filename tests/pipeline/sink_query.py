"""Driver process of a streaming query from topic to topic that reads up to the current end and stops."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from penstock.pipeline.session import open_session

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def copy(spark: SparkSession, bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    rows = reader.options(subscribe=source, startingOffsets="earliest").load()
    writer = rows.select("key", "value").writeStream.format("penstock")
    query = (
        writer.option("kafka.bootstrap.servers", bootstrap)
        .options(topic=target, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main() -> None:
    # Spark retries a task that dies.
    spark = open_session("sink", "local[2,4]", {"spark.driver.extraJavaOptions": JAVA_OPTIONS})
    copy(spark, *sys.argv[1:])
    spark.stop()


if __name__ == "__main__":
    main()
