"""Columns of a topic as a table: names, order and types of Spark's own Kafka source."""

from __future__ import annotations

import pyarrow as pa

HEADERS = "headers"
BASIC = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
ALL = (*BASIC, HEADERS)
CREATE_TIMESTAMP = "createTimestamp"
"""Optional column with the time at which the producer created the record. Differs from `timestamp` for topics with
`message.timestamp.type=LogAppendTime`.
"""

SIZE, CRC = "size", "crc"
"""Optional columns with the size in bytes and the CRC-32C of the content of a record (see `content_columns`)."""

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
