"""Statistics of topics by time window, as a stream: records, bytes, distinct keys and latency.

A window is written once, `delay_ms` after its end; the delay is for late records. Spark's checkpoint contains the
progress. Table and topic each store the number of the last batch, so that no batch is written twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from penstock.pipeline.options import OptionError
from penstock.pipeline.stats_outputs import write_to_table, write_to_topic
from penstock.pipeline.table_store import Store, store_at

PERCENTILES = {"latency_ms_p50": 0.5, "latency_ms_p95": 0.95, "latency_ms_p99": 0.99}
SCHEMA = pa.schema(
    [
        ("window_start", pa.timestamp("us", tz="UTC")),
        ("window_end", pa.timestamp("us", tz="UTC")),
        ("topic", pa.string()),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("keys", pa.int64()),
        *((name, pa.float64()) for name in PERCENTILES),
    ]
)
_COLUMNS = "key,value,topic,timestamp,createTimestamp,timestampType"


@dataclass(frozen=True, slots=True)
class StatsJob:
    bootstrap: str
    topics: tuple[str, ...]
    to: str
    """Path or URI of the table."""
    checkpoint: str | None = None
    window_ms: int = 60_000
    delay_ms: int = 60_000
    to_topic: str | None = None

    @property
    def store(self) -> Store:
        return store_at(self.to)

    @property
    def checkpoint_location(self) -> str:
        if self.checkpoint is not None:
            return self.checkpoint
        if not self.store.is_file_system:
            raise OptionError("a table in an object store needs a checkpoint: set a checkpoint directory")
        return f"{self.store.uri}.checkpoint"


def start(spark: SparkSession, job: StatsJob, *, once: bool) -> StreamingQuery:
    """Start the query. It ends at the current end of the topics with `once`, else it runs until stopped."""
    rows = (
        spark.readStream.format("penstock")
        .options(bootstrap=job.bootstrap, subscribe=",".join(job.topics), columns=_COLUMNS)
        .option("startingOffsets", "earliest")
        .load()
    )

    def write(batch: DataFrame, number: int) -> None:
        table = batch.toArrow().cast(SCHEMA).sort_by([("window_start", "ascending"), ("topic", "ascending")])
        if table.num_rows:
            write_to_table(job.store, job.checkpoint_location, table, number)
            if job.to_topic is not None:
                write_to_topic(job.bootstrap, job.to_topic, job.checkpoint_location, table, number)

    writer = (
        windowed(rows, job.window_ms, job.delay_ms)
        .writeStream.outputMode("append")
        .option("checkpointLocation", job.checkpoint_location)
        .foreachBatch(write)
    )
    return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime="5 seconds")).start()


def windowed(rows: DataFrame, window_ms: int, delay_ms: int) -> DataFrame:
    """Aggregate rows by window and topic. Latency is null unless the broker sets the timestamps
    (LogAppendTime).
    """
    latency = f.when(
        f.col("timestampType") == 1,
        f.unix_millis("timestamp") - f.unix_millis("createTimestamp"),
    ).cast("double")
    size = f.coalesce(f.octet_length("key"), f.lit(0)) + f.coalesce(f.octet_length("value"), f.lit(0))
    return (
        rows.withColumn("_latency", latency)
        .withColumn("_size", size.cast("long"))
        .withWatermark("timestamp", f"{delay_ms} milliseconds")
        .groupBy(f.window("timestamp", f"{window_ms} milliseconds"), "topic")
        .agg(
            f.count("*").alias("records"),
            f.sum("_size").alias("bytes"),
            f.approx_count_distinct("key").alias("keys"),
            *(f.percentile_approx("_latency", share).alias(name) for name, share in PERCENTILES.items()),
        )
        .select(
            f.col("window.start").alias("window_start"),
            f.col("window.end").alias("window_end"),
            "topic",
            "records",
            "bytes",
            "keys",
            *PERCENTILES,
        )
    )
