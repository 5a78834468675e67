"""One row for each key: the last one, as log compaction would leave it, or the first, which takes duplicates away."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.delta_writer import overwrite
from penstock.pipeline.options import SourceOptions
from penstock.pipeline.query import topic_frame
from penstock.pipeline.table_store import store_at


class Keep(StrEnum):
    LAST = "last"
    FIRST = "first"


@dataclass(frozen=True, slots=True)
class CompactJob:
    options: SourceOptions
    to: str
    by: str = "key"
    """SQL: rows of one topic that agree in it are one. Where it is null a row stands for nothing."""
    keep: Keep = Keep.LAST


def compact(spark: SparkSession, job: CompactJob) -> int:
    """Write the table anew; how many rows it has."""
    rows = topic_frame(spark, job.options.bootstrap, job.options.topics, job.options.archive)
    return overwrite(compacted(rows, job.by, job.keep), store_at(job.to))


def compacted(rows: DataFrame, by: str, keep: Keep) -> DataFrame:
    """In a partition its offsets say what came last; between partitions, time does. A last row without a value is a
    deletion."""
    choose = f.max_by if keep is Keep.LAST else f.min_by
    whole = f.struct(*rows.columns)
    named = rows.withColumn("_by", f.expr(f"struct({by})"))
    found = (
        named.where(_is_known(named))
        .groupBy("topic", "_by", "partition")
        .agg(choose(whole, f.col("offset")).alias("_row"))
        .groupBy("topic", "_by")
        .agg(choose(f.col("_row"), f.col("_row.timestamp")).alias("_row"))
        .select("_row.*")
    )
    return found.where("value is not null") if keep is Keep.LAST else found


def _is_known(rows: DataFrame) -> Column:
    known = f.lit(False)
    for field in rows.select("_by.*").columns:
        known = known | f.col(f"_by.`{field}`").isNotNull()
    return known
