"""Jobs of Spark's own Kafka connector in a warm session: one line of JSON in, one line of figures out.

The PySpark that the connector needs runs this file, so it imports nothing of Penstock.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession


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
        _run(_records(session, job), job)
        print(json.dumps({"seconds": time.monotonic() - began}), flush=True)
        if job["target"]:
            shutil.rmtree(job["target"])


def _records(session: SparkSession, job: dict[str, Any]) -> DataFrame:
    options = {
        "kafka.bootstrap.servers": job["bootstrap"],
        "subscribe": job["topic"],
        "includeHeaders": "true",
    }
    return session.read.format("kafka").options(**options).load()


def _run(records: DataFrame, job: dict[str, Any]) -> None:
    if job["target"]:
        records.write.parquet(job["target"])
    else:
        records.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    main()
