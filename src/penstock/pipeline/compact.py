"""Compaction of topics to a table with one row for each key: the last row, as in log compaction, or the first row,
which removes duplicates.
"""

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
    """SQL expression for the key: one row is kept of the rows of a topic with equal values. Rows with a null key are
    dropped.
    """
    keep: Keep = Keep.LAST


def compact(spark: SparkSession, job: CompactJob) -> int:
    """Write the compacted table. Returns its number of rows."""
    rows = topic_frame(spark, job.options.bootstrap, job.options.topics, job.options.archive)
    return overwrite(compacted(rows, job.by, job.keep), store_at(job.to))


def compacted(rows: DataFrame, by: str, keep: Keep) -> DataFrame:
    """Keep one row for each topic and key. Rows of a partition are ordered by offset, rows of different partitions by
    timestamp. With Keep.LAST, a key whose last row has a null value (tombstone) has no row.
    """
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
