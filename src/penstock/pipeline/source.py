"""Data source of `.format("penstock")`: topics as tables, for batches and streams.

Spark pickles readers and partitions to send them to other processes, so both contain plain values only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock.declared.value_schema import ERROR
from penstock.pipeline.catalog_options import all_options, is_of_catalog, with_options
from penstock.pipeline.columns import schema_of
from penstock.pipeline.offsets import topics_of
from penstock.pipeline.options import EARLIEST, LATEST, Bound, SourceOptions, parse
from penstock.pipeline.planning import Plan
from penstock.pipeline.range_reading import read_rows, warn
from penstock.pipeline.ranges import OffsetRange
from penstock.pipeline.typed.arrow_types import value_fields
from penstock.pipeline.typed.typed_rows import typed_rows

TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "createTimestamp": "timestamp",
    "size": "int",
    "crc": "bigint",
    "headers": "array<struct<key string, value binary>>",
}


class PenstockSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str | StructType:
        options = parse(self.options)
        if is_of_catalog(self.options):
            return with_options(from_arrow_schema(_arrow_schema(options)), self.options)
        names = options.columns[:-1] if options.hides_value else options.columns
        columns = [f"{name} {TYPES[name]}" for name in names]
        if options.value_schema is not None:
            columns += [options.value_schema.ddl(), f"{ERROR} string"]
        return ", ".join(columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.pipeline.filters import FilteringReader

        options = parse(all_options(schema, self.options))
        if options.archive is not None:
            from penstock.pipeline.archive.filtering import FilteringTableReader
            from penstock.pipeline.archive.table_source import TableReader

            return FilteringTableReader(options) if options.pushes_filters else TableReader(options)
        return FilteringReader(options) if options.pushes_filters else BatchReader(options)

    def streamReader(self, schema: StructType) -> Any:
        from penstock.pipeline.stream_reader import StreamReader

        options = parse(all_options(schema, self.options))
        if options.archive is not None:
            from penstock.pipeline.archive.table_source import TableStreamReader

            return TableStreamReader(options)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.pipeline.sink.batch_writer import SinkBatchWriter

        return SinkBatchWriter.checked(all_options(schema, self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from penstock.pipeline.sink.stream_writer import SinkStreamWriter

        return SinkStreamWriter.checked(all_options(schema, self.options), schema)


def _arrow_schema(options: SourceOptions) -> pa.Schema:
    names = options.columns[:-1] if options.hides_value else options.columns
    typed = () if options.value_schema is None else value_fields(options.value_schema)
    return pa.schema([*schema_of(names), *typed])


class RangePartition(InputPartition):
    def __init__(self, range_: OffsetRange) -> None:
        super().__init__(range_)
        self.range = range_


class BatchReader(DataSourceReader):
    """Batch reader. If there are no partitions, Spark calls `read` once, with an empty partition that Spark creates."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        plan = Plan(self.options, topics_of(self.options))
        ranges = self.select(plan)
        return [RangePartition(each) for each in self.options.split(ranges)]

    def select(self, plan: Plan) -> list[OffsetRange]:
        """Offset ranges to read."""
        starts = plan.resolve(self.options.start or Bound(EARLIEST))
        ends = plan.resolve(self.options.end or Bound(LATEST), is_end=True)
        return plan.ranges(starts, ends, warn)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            return iter(())
        return typed_rows(self.options, read_rows(self.options, partition.range))
