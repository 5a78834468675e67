"""The columns of a topic read as a table: those of Spark's own Kafka source, in its order and with its types."""

from __future__ import annotations

import pyarrow as pa

HEADERS = "headers"
BASIC = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
ALL = (*BASIC, HEADERS)
CREATE_TIMESTAMP = "createTimestamp"
"""When the producer made a record: of a topic with LogAppendTime another time than when it was stored. By request."""

SIZE, CRC = "size", "crc"
"""Size in bytes and CRC-32C of a record's content (`content_columns`). By request."""

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

FIELDS = {
    "key": pa.field("key", pa.binary()),
    "value": pa.field("value", pa.binary()),
    "topic": pa.field("topic", pa.string()),
    "partition": pa.field("partition", pa.int32()),
    "offset": pa.field("offset", pa.int64()),
    "timestamp": pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    "timestampType": pa.field("timestampType", pa.int32()),
    CREATE_TIMESTAMP: pa.field(CREATE_TIMESTAMP, pa.timestamp("us", tz="UTC")),
    SIZE: pa.field(SIZE, pa.int32()),
    CRC: pa.field(CRC, pa.int64()),
    HEADERS: pa.field(HEADERS, pa.list_(pa.field("element", _HEADER))),
}


def schema_of(columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([FIELDS[name] for name in columns])
