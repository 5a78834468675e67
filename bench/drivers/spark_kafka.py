"""Jobs of Spark's own Kafka connector in a warm session: one line of JSON in, one line of figures out.

The PySpark that the connector needs runs this file, so it imports nothing of Penstock.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f


def main() -> None:
    jars = sys.argv[1]
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    for line in sys.stdin:
        job = json.loads(line)
        began = time.monotonic()
        figures: dict[str, float] = {}
        if job.get("batch_rows"):
            figures["batch_ms"] = batch_ms(_stream(session, job), job["target"])
        else:
            _run(_records(session, job), job)
        print(json.dumps({"seconds": time.monotonic() - began, **figures}), flush=True)
        if job["target"]:
            shutil.rmtree(job["target"])


def _options(job: dict[str, Any]) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": job["bootstrap"],
        "subscribe": job["topic"],
        "includeHeaders": "true",
    }


def _records(session: SparkSession, job: dict[str, Any]) -> DataFrame:
    return session.read.format("kafka").options(**_options(job)).load()


def _stream(session: SparkSession, job: dict[str, Any]) -> DataFrame:
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(job["batch_rows"])}
    return session.readStream.format("kafka").options(**_options(job), **limits).load()


def batch_ms(rows: DataFrame, checkpoint: str) -> float:
    """Median duration of the micro-batches of a stream to nowhere; the first one warms up."""
    writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    times: list[float] = [
        each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"]
    ]
    return statistics.median(times[1:])


def _run(records: DataFrame, job: dict[str, Any]) -> None:
    if job.get("schema"):
        parsed = f.from_json(f.col("value").cast("string"), job["schema"])
        records = records.withColumn("parsed", parsed).select("*", "parsed.*").drop("parsed")
    if job["target"]:
        records.write.parquet(job["target"])
    else:
        records.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    main()
