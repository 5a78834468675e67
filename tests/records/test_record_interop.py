"""Our batches read by aiokafka and kafka-python, and theirs by us."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from aiokafka.record.memory_records import MemoryRecords as AioRecords

from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.records.iteration import iterate
from penstock.records.validation import check_batch, check_records

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own use of importlib.resources
    from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords
    from kafka.record.memory_records import MemoryRecordsBuilder as KafkaPythonBuilder

RECORDS = [
    NewRecord(None, b"no key", 1_700_000_000_000),
    NewRecord(b"tombstone", None, 1_700_000_000_001),
    NewRecord(b"", b"", 1_699_999_999_999, (("none", None), ("some", b"\x00\xff"), ("ключ", b""))),
    *(NewRecord(b"key-%d" % i, b"value" * i, 1_700_000_000_000 + 70 * i) for i in range(300)),
]
PLAIN = [(i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(RECORDS)]
# kafka-python reads snappy, lz4 and zstd by other packages, which are not installed
KAFKA_PYTHON_CODECS = [Codec.NONE, Codec.GZIP]


def read_by(implementation: Any, codec: Codec) -> list[tuple[Any, ...]]:
    parsed = implementation(bytes(build_batch(RECORDS, codec=codec)))
    batch = parsed.next_batch()
    assert batch.validate_crc()
    return [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]


def read_by_us(built: bytes) -> list[tuple[Any, ...]]:
    buffer = memoryview(built)
    header = check_batch(buffer, max_bytes=2**20)
    check_records(buffer, header, max_decompressed_bytes=2**26, require_keys=False)
    return [tuple(record) for record in iterate(buffer, header)]


@pytest.mark.parametrize("codec", Codec)
def test_aiokafka_reads_our_batches(codec: Codec) -> None:
    assert read_by(AioRecords, codec) == PLAIN


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
def test_kafka_python_reads_our_batches(codec: Codec) -> None:
    assert read_by(KafkaPythonRecords, codec) == PLAIN


@pytest.mark.parametrize("codec", Codec)
def test_we_read_batches_of_aiokafka(codec: Codec) -> None:
    builder = AioBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2**22,
    )
    for offset, record in enumerate(RECORDS):
        builder.append(offset, record.timestamp, record.key, record.value, list(record.headers))
    assert read_by_us(bytes(builder.build())) == PLAIN


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
def test_we_read_batches_of_kafka_python(codec: Codec) -> None:
    builder = KafkaPythonBuilder(magic=2, compression_type=codec, batch_size=2**22)
    for record in RECORDS:
        builder.append(
            timestamp=record.timestamp, key=record.key, value=record.value, headers=list(record.headers)
        )
    builder.close()
    assert read_by_us(bytes(builder.buffer())) == PLAIN
