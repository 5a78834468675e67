"""Reads of a Spark source, whose rows and sums are written for a comparison.

Both sides use this file. As a program it is the side of Spark's own Kafka connector: `spark_reads.py JARS`, one read
as a JSON object per line of input, one answer per line of output. The PySpark that the connector needs runs it, so it
imports nothing of Penstock.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "unix_micros(timestamp) as timestamp",
    "timestampType",
    "headers",
)
SUMS = (
    "count(*) as records",
    "count(key) as keys",
    "count(value) as `values`",
    "min(offset) as first",
    "max(offset) as last",
    "sum(offset) as offsets",
    "sum(unix_micros(timestamp)) as times",
    "sum(length(value)) as bytes",
    "sum(crc32(key)) as key_crcs",
    "sum(crc32(value)) as value_crcs",
    "sum(size(headers)) as headers",
)


def answer(spark: SparkSession, source: str, read: dict[str, Any]) -> dict[str, Any]:
    """Write the rows of a read to Parquet. Returns its sums by partition, and the last offsets of a stream."""
    options = {"includeHeaders": "true", **read["options"]}
    if not read["is_stream"]:
        rows = spark.read.format(source).options(**options).load()
        rows.selectExpr(*COLUMNS).write.parquet(read["place"])
        return {"sums": sums(spark, rows)}
    rows = spark.readStream.format(source).options(**options).load()
    query = (
        rows.selectExpr(*COLUMNS)
        .writeStream.format("parquet")
        .option("path", read["place"])
        .option("checkpointLocation", read["place"] + "-checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = [each for each in query.recentProgress if each["numInputRows"]]
    ends = json.loads(batches[-1]["sources"][0]["endOffset"])
    return {"batches": len(batches), "ends": ends.get("offsets", ends)}


def sums(spark: SparkSession, rows: DataFrame) -> list[dict[str, Any]]:
    rows.createOrReplaceTempView("compared")
    query = f"select topic, partition, {', '.join(SUMS)} from compared group by 1, 2 order by 1, 2"
    return [row.asDict() for row in spark.sql(query).collect()]


def main() -> None:
    session = SparkSession.builder.master("local[2]").appName("connector")
    for name, value in {
        "spark.jars": sys.argv[1],
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
    }.items():
        session = session.config(name, value)
    spark = session.getOrCreate()
    for line in sys.stdin:
        print(json.dumps(answer(spark, "kafka", json.loads(line))), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
