"""Topics as tables of Spark SQL, each under its name, with the records of archive and log."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline.archive.table import ArchiveTable
from penstock.pipeline.offsets import topic_names
from penstock.pipeline.options import OptionError
from penstock.pipeline.table_store import store_at


def topic_frame(spark: SparkSession, bootstrap: str, topics: Sequence[str], archive: str | None) -> DataFrame:
    reader = spark.read.format("penstock").options(
        bootstrap=bootstrap, subscribe=",".join(topics), includeHeaders="true"
    )
    if archive is not None:
        # Spark plans in other processes with other working directories: a relative path is resolved here.
        reader = reader.option("archive", store_at(archive).uri)
    return reader.load()


def query(
    spark: SparkSession, bootstrap: str, sql: str, topics: Sequence[str], archive: str | None
) -> DataFrame:
    """Result of an SQL statement. Tables are the given topics, or else all topics that the statement
    mentions.
    """
    known = topic_names(bootstrap)
    if archive is not None:
        known += [name for name in ArchiveTable.at(archive).view().topics if name not in known]
    missing = [name for name in topics if name not in known]
    if missing:
        raise OptionError(f"there is no topic {missing[0]!r}")
    for name in topics or [name for name in known if _mentions(sql, name)]:
        topic_frame(spark, bootstrap, [name], archive).createOrReplaceTempView(f"`{name}`")
    return spark.sql(sql)


def _mentions(sql: str, topic: str) -> bool:
    """Whether the statement contains the topic as a word. Names with dots or dashes are written in backticks."""
    return re.search(rf"(?<![\w.`-]){re.escape(topic)}(?![\w.`-])|`{re.escape(topic)}`", sql) is not None
