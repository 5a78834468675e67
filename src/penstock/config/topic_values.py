"""Enumerations for topic options with a fixed set of values."""

from __future__ import annotations

from enum import StrEnum


class CleanupPolicy(StrEnum):
    DELETE = "delete"
    COMPACT = "compact"


class CompressionType(StrEnum):
    PRODUCER = "producer"
    UNCOMPRESSED = "uncompressed"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Durability(StrEnum):
    AUTO = "auto"
    OS = "os"
    FSYNC = "fsync"


class MessageTimestampType(StrEnum):
    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"
