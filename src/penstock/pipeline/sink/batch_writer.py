"""Batch sink, `df.write.format("penstock")`: writes rows to topics at least once.

Rows are visible as soon as they are written. The rows of a failed job are not removed, and a retried task writes its
rows again. The streaming sink (`sink.stream_writer`) writes each row exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.internal_client.routes import Routes
from penstock.pipeline.offsets import NoSuchTopic, run
from penstock.pipeline.options import OptionError
from penstock.pipeline.sink.options import SinkOptions, check_schema, parse_sink
from penstock.pipeline.sink.producer import new_producer
from penstock.pipeline.sink.task_writer import TaskWriter


@dataclass(frozen=True)
class RowsWritten(WriterCommitMessage):
    written: int


class SinkBatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @classmethod
    def checked(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> SinkBatchWriter:
        """Create a writer. Raises OptionError for invalid options or columns before anything is written."""
        if overwrite:
            raise OptionError("a topic cannot be overwritten: use mode('append')")
        parsed = parse_sink(options)
        check_schema(schema, parsed)
        check_topic(parsed)
        return cls(parsed)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        written = 0
        with TaskWriter(self._options, context.partitionId() if context else 0) as writer:
            for rows in iterator:
                if rows.num_rows:
                    if not written:
                        writer.begin(writer.run(new_producer(writer.routes)))
                    writer.write(rows)
                    written += rows.num_rows
        return RowsWritten(written)


def check_topic(options: SinkOptions) -> None:
    """Raise NoSuchTopic if the topic of the option `topic` does not exist.

    Spark creates the writer of a stream in the stream's thread when the first batch begins, and calls no method of a
    Python data source before `start()` returns. Therefore the error cannot be raised by `start()`; it ends the query.
    """

    async def ask(routes: Routes) -> None:
        if options.topic is not None:
            await routes.topic(options.topic)

    try:
        run(options.bootstrap, ask)
    except NoSuchTopic as error:
        fix = f"create it with `penstock topic create {options.topic} --bootstrap {options.bootstrap}`"
        raise NoSuchTopic(f"{error}; {fix} and start the query again") from None
