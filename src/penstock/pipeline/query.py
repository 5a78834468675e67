"""Topics as tables of Spark SQL, each under its name, with the records of archive and log."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from penstock.pipeline.archive.table import ArchiveTable
from penstock.pipeline.offsets import topic_names
from penstock.pipeline.options import OptionError
from penstock.pipeline.table_store import store_at

RAW_VALUE = "raw_value"
"""Column with the undecoded bytes of a value, in a query that uses the fields of `value`."""
_SAMPLE = 1_000
_FIELD = re.compile(r"(?<![\w.`])(?:(?:\w+|`[^`]+`)\.)?value\.[\w`]", re.IGNORECASE)


def topic_frame(
    spark: SparkSession, bootstrap: str, topics: Sequence[str], archive: str | None, schema: str | None = None
) -> DataFrame:
    reader = spark.read.format("penstock").options(
        bootstrap=bootstrap, subscribe=",".join(topics), includeHeaders="true"
    )
    if schema is not None:
        reader = reader.option("valueSchema", schema)
    if archive is not None:
        # Spark plans in other processes with other working directories: a relative path is resolved here.
        reader = reader.option("archive", store_at(archive).uri)
    return reader.load()


def query(
    spark: SparkSession,
    bootstrap: str,
    sql: str,
    topics: Sequence[str],
    archive: str | None,
    schema: str | None = None,
) -> DataFrame:
    """Result of an SQL statement. Its tables are `topics`, or else all topics that the statement mentions. If the
    statement contains `value.field`, the fields of JSON values are inferred; with `schema`, they are columns.
    """
    known = topic_names(bootstrap)
    if archive is not None:
        known += [name for name in ArchiveTable.at(archive).view().topics if name not in known]
    missing = [name for name in topics if name not in known]
    if missing:
        raise OptionError(f"there is no topic {missing[0]!r}")
    for name in topics or [name for name in known if _mentions(sql, name)]:
        frame = topic_frame(spark, bootstrap, [name], archive, schema)
        if schema is None and _FIELD.search(sql):
            frame = _with_fields(frame, name)
        frame.createOrReplaceTempView(f"`{name}`")
    return spark.sql(sql)


def _with_fields(frame: DataFrame, topic: str) -> DataFrame:
    """Rows with the value as a struct, whose fields are inferred from the first JSON objects of the topic."""
    texts = frame.select(f.col("value").cast("string").alias("text"))
    sample = texts.where("text is not null").limit(_SAMPLE)
    found = frame.sparkSession.read.json(sample.rdd.map(lambda row: row.text)).schema
    fields = [field for field in found.fields if field.name != "_corrupt_record"]
    if not fields:
        raise OptionError(f"no value of {topic!r} is a JSON object: `value` has no fields")
    parsed = f.from_json(f.col("value").cast("string"), StructType(fields))
    return frame.withColumn(RAW_VALUE, f.col("value")).withColumn("value", parsed)


def _mentions(sql: str, topic: str) -> bool:
    """Return True if the statement contains the topic as a word. Names with dots or dashes are written in backticks."""
    return re.search(rf"(?<![\w.`-]){re.escape(topic)}(?![\w.`-])|`{re.escape(topic)}`", sql) is not None
