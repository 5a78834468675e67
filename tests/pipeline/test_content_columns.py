"""Columns `size` and `crc` of rows from the log and from an archive."""

from __future__ import annotations

from pathlib import Path

import pytest
from archive_helpers import job, make, produce
from hypothesis import given, settings
from hypothesis import strategies as st
from in_process import InProcess
from test_builders import BUILDERS, records

from penstock.pipeline.archive.archiver import Archiver
from penstock.pipeline.archive.table_source import TableReader
from penstock.pipeline.decoding import decode
from penstock.pipeline.options import parse
from penstock.pipeline.ranges import OffsetRange
from penstock.pipeline.source import BatchReader, PenstockSource
from penstock.records.building import NewRecord, build_batch
from penstock.records.content import content_crc, content_size
from penstock.testing.process import BrokerProcess

COLUMNS = "offset,size,crc"


@given(st.lists(st.lists(records, min_size=1, max_size=5), min_size=1, max_size=3), st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_size_and_crc_are_those_of_the_content(batches: list[list[NewRecord]], first: int) -> None:
    built, base = b"", 0
    for batch in batches:
        built += build_batch(batch, base_offset=base)
        base += len(batch)
    flat = [record for batch in batches for record in batch]
    wanted = [
        (offset, content_size(each.key, each.value, each.headers), content_crc(each.key, each.value))
        for offset, each in enumerate(flat)
    ][first:]
    for make_builder in BUILDERS:
        chunks = iter([(memoryview(built), None)])
        range_ = OffsetRange("t", "0" * 32, 0, first, base)
        found = [
            tuple(row.values())
            for rows in decode(chunks, range_, ("offset", "size", "crc"), make_builder)
            for row in rows.to_pylist()
        ]
        assert found == wanted


def test_rows_of_log_and_archive_have_the_same_size_and_crc(
    penstock_session_broker: BrokerProcess, tmp_path: Path, topic_name: str
) -> None:
    bootstrap, place = penstock_session_broker.bootstrap, tmp_path / "archive"
    make(bootstrap, topic_name, 1)
    produce(bootstrap, topic_name, range(30), 1)
    options = {"bootstrap": bootstrap, "subscribe": topic_name, "columns": COLUMNS}
    wanted = [
        (
            number,
            content_size(b"key %d" % (number % 10), b"value %d" % number, (("number", b"%d" % number),)),
            content_crc(b"key %d" % (number % 10), b"value %d" % number),
        )
        for number in range(30)
    ]
    assert read(BatchReader(parse(options))) == wanted
    list(Archiver(job(bootstrap, place, topic_name), InProcess(), pytest.fail).run())
    assert sorted(read(TableReader(parse({**options, "archive": str(place)})))) == wanted


def read(reader: BatchReader) -> list[tuple[object, ...]]:
    return [
        tuple(row.values())
        for part in reader.partitions()
        for rows in reader.read(part)
        for row in rows.to_pylist()
    ]


def test_default_columns_are_those_of_sparks_source() -> None:
    given = {"bootstrap": "localhost:1", "subscribe": "t"}
    assert "crc" not in PenstockSource(given).schema()
    with_all = PenstockSource({**given, "columns": "value,size,crc"})
    assert with_all.schema() == "value binary, size int, crc bigint"
