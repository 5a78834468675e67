"""Options and columns of the sinks, checked before anything is written. Names and meaning are those of Spark's own
Kafka sink.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from penstock.pipeline.catalog_options import is_of_catalog, without_catalog
from penstock.pipeline.kafka_security import NAMES as SECURITY_NAMES
from penstock.pipeline.options import OptionError, bootstrap_of, choice_of, is_for_reading, number_of
from penstock.records.compression import Codec

TOPIC, KEY, VALUE, HEADERS, PARTITION = COLUMNS = ("topic", "key", "value", "headers", "partition")

ACCEPT_LOSS = "acceptLossOfBatch"
_KNOWN = {
    name.lower(): name
    for name in (
        "kafka.bootstrap.servers",
        "bootstrap",
        "topic",
        "kafka.compression.type",
        ACCEPT_LOSS,
        *SECURITY_NAMES,
    )
}
_WITHOUT_MEANING = frozenset(
    name.lower()
    for name in (
        "checkpointLocation",
        "queryName",
        "path",
        "includeHeaders",
        "kafka.acks",
        "kafka.batch.size",
        "kafka.buffer.memory",
        "kafka.client.id",
        "kafka.delivery.timeout.ms",
        "kafka.enable.idempotence",
        "kafka.linger.ms",
        "kafka.max.in.flight.requests.per.connection",
        "kafka.max.request.size",
        "kafka.request.timeout.ms",
        "kafka.retries",
    )
)
"""Options of Spark and of its Kafka client that are accepted and ignored: all writes are idempotent with acks=all."""


class SchemaError(OptionError):
    """A column is missing or has the wrong type."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    bootstrap: str
    topic: str | None
    """Topic of all rows; overrides the column `topic`. None if the column names the topics."""
    codec: Codec
    checkpoint: str | None = None
    """Checkpoint directory of the query, in which Spark stores the query id."""
    accepts_loss_of_batch: int | None = None
    """Number of a batch that has lost rows. If set by the operator, the query continues without these rows."""


def parse_sink(given: Mapping[str, str]) -> SinkOptions:
    options = without_catalog(given)
    if is_of_catalog(given):
        options = _for_writing(options)
    for name in sorted(options.keys() - _KNOWN.keys() - _WITHOUT_MEANING):
        raise OptionError(
            f"unknown option {name!r} for writing; known options: {', '.join(sorted(_KNOWN.values()))}"
        )
    values = {_KNOWN[name]: value for name, value in options.items() if name in _KNOWN}
    codec = choice_of(values, "kafka.compression.type", tuple(each.name.lower() for each in Codec))
    checkpoint = options.get("checkpointlocation")
    return SinkOptions(
        bootstrap_of(values),
        values.get("topic"),
        Codec[codec.upper()],
        checkpoint,
        number_of(values, ACCEPT_LOSS),
    )


def _for_writing(options: Mapping[str, str]) -> dict[str, str]:
    """Options of a table of Spark's catalog for writing. If the table reads one topic, rows are written to this
    topic.
    """
    names = options.get("subscribe", "").split(",")
    topic = {"topic": names[0].strip()} if names[0] and len(names) == 1 else {}
    kept = {name: value for name, value in options.items() if name in _KNOWN or not is_for_reading(name)}
    return {**topic, **kept}


def check_schema(schema: StructType, options: SinkOptions) -> None:
    """Raise SchemaError for columns that cannot be written. Unknown columns are ignored, as in Spark's sink."""
    if VALUE not in schema.names:
        raise SchemaError(f"the column {VALUE!r} is missing; columns: {', '.join(schema.names)}")
    if options.topic is None and TOPIC not in schema.names:
        raise SchemaError("there is no topic to write to: set the option 'topic' or add a column 'topic'")
    for field in schema.fields:
        if field.name in COLUMNS and not _fits(field.name, field.dataType):
            raise SchemaError(
                f"the column {field.name!r} must be {_WANTED[field.name]}, not {field.dataType.simpleString()}"
            )


_WANTED = {
    TOPIC: "string",
    KEY: "string or binary",
    VALUE: "string or binary",
    PARTITION: "int",
    HEADERS: "array<struct<key:string,value:binary>>",
}


def _fits(name: str, kind: DataType) -> bool:
    if name == TOPIC:
        return isinstance(kind, StringType)
    if name == PARTITION:
        return isinstance(kind, IntegerType)
    if name == HEADERS:
        return (
            isinstance(kind, ArrayType)
            and isinstance(kind.elementType, StructType)
            and kind.elementType.names == ["key", "value"]
            and isinstance(kind.elementType["key"].dataType, StringType)
            and isinstance(kind.elementType["value"].dataType, BinaryType)
        )
    return isinstance(kind, StringType | BinaryType)
