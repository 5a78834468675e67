"""Rows of a declared pipeline: reading the source, typed columns, transformation, dead letters, and conversion to
records of a topic.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, BinaryType, StringType

from penstock.declared.definition import BATCH, PipelineDefinition, Transform
from penstock.declared.value_schema import ERROR
from penstock.errors import PenstockError
from penstock.pipeline.sink.options import COLUMNS, HEADERS, KEY, VALUE
from penstock.pipeline.table_store import store_at

VIEW = "source"
"""Name of the view with the rows of the source, for an SQL transformation."""


class TransformationFailed(PenstockError):
    """The function or the SQL query of a pipeline cannot be used."""


def source_rows(spark: SparkSession, bootstrap: str, definition: PipelineDefinition) -> DataFrame:
    """Stream of the source: the columns of the record, and with a schema the typed columns and the reason why a value
    does not match it.
    """
    source = definition.source
    reader = spark.readStream.format("penstock").options(
        bootstrap=bootstrap, startingOffsets=source.start, includeHeaders="true", **dict(source.options)
    )
    if source.pattern is not None:
        reader = reader.option("subscribePattern", source.pattern)
    else:
        reader = reader.option("subscribe", ",".join(source.topics))
    if source.archive is not None:
        reader = reader.option("archive", store_at(source.archive).uri)
    if definition.schema is not None:
        reader = reader.option("valueSchema", definition.schema.source)
    return reader.load()


def good_rows(rows: DataFrame) -> DataFrame:
    return rows.where(f.col(ERROR).isNull()).drop(ERROR) if ERROR in rows.columns else rows


def dead_letters(rows: DataFrame, pipeline: str) -> DataFrame:
    """Rows that do not match the schema, as records for the dead-letter topic: unchanged, with the reason and their
    origin in headers.
    """

    def header(name: str, value: Any) -> Any:
        return f.struct(f.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))

    added = f.array(
        header("penstock-error", f.col(ERROR)),
        header("penstock-pipeline", f.lit(pipeline)),
        header("penstock-source-topic", f.col("topic")),
        header("penstock-source-partition", f.col("partition")),
        header("penstock-source-offset", f.col("offset")),
    )
    kind = "array<struct<key:string,value:binary>>"
    present = f.coalesce(f.col("headers"), f.array().cast(kind))
    bad = rows.where(f.col(ERROR).isNotNull())
    return bad.select("key", "value", f.concat(present, added.cast(kind)).alias("headers"))


def transformed(rows: DataFrame, definition: PipelineDefinition) -> DataFrame:
    """Result of the transformation on the rows of a stream, or of one batch in mode `batch`."""
    change = definition.transform
    if change is None:
        return rows
    if change.watermark is not None and rows.isStreaming:
        rows = rows.withWatermark(*change.watermark)
    if change.sql is not None:
        rows.createOrReplaceTempView(VIEW)
        return rows.sparkSession.sql(change.sql)
    return _called(change, rows)


def is_per_batch(definition: PipelineDefinition) -> bool:
    return definition.transform is not None and definition.transform.mode == BATCH


def _called(change: Transform, rows: DataFrame) -> DataFrame:
    module, _, name = (change.function or "").partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # finds functions in the working directory, as `python -m` does
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise TransformationFailed(
            f"the function {change.function} cannot be imported: {error}. Install its package where the supervisor "
            "runs, or set PYTHONPATH"
        ) from None
    try:
        result = function(rows)
    except Exception as error:
        raise TransformationFailed(
            f"the function {change.function} failed: {type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        ) from error
    if not isinstance(result, DataFrame):
        raise TransformationFailed(
            f"the function {change.function} returned {type(result).__name__}, not a DataFrame"
        )
    return result


def as_records(rows: DataFrame, target: str) -> DataFrame:
    """Convert rows to records of a topic. If there is no column `value` of text or bytes, the value is a JSON object of
    all columns except `key`, `headers`, `partition` and `topic`.
    """
    fields = {each.name: each.dataType for each in rows.schema.fields}
    chosen = []
    if KEY in fields:
        is_ready = isinstance(fields[KEY], StringType | BinaryType)
        chosen.append(f.col(KEY) if is_ready else f.col(KEY).cast("string").alias(KEY))
    if isinstance(fields.get(VALUE), StringType | BinaryType):
        chosen.append(f.col(VALUE))
    else:
        content = [name for name in rows.columns if name not in COLUMNS]
        if not content:
            raise TransformationFailed(
                f"no column is left for the values of {target}: select a column `value`"
            )
        columns = [f.col(f"`{name}`") for name in content]
        chosen.append(f.to_json(f.struct(*columns)).alias(VALUE))
    if isinstance(fields.get(HEADERS), ArrayType):
        chosen.append(f.col(HEADERS))
    return rows.select(*chosen)


def check_outputs(rows: DataFrame, definition: PipelineDefinition) -> None:
    """Raise TransformationFailed for columns that cannot be written to the targets."""
    if not rows.columns:
        raise TransformationFailed("the transformation returned no columns")
    lower = [name.lower() for name in rows.columns]
    twice = sorted({name for name in lower if lower.count(name) > 1})
    if twice:
        raise TransformationFailed(f"the transformation returned two columns {twice[0]!r}: rename one")
