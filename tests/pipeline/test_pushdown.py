"""Filters limit what is read from log and archive. No Spark is started."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from archive_helpers import START_MS, archive, delete_records, job, make, produce
from in_process import InProcess
from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, GreaterThanOrEqual, LessThan
from pyspark.sql.types import StructType

from penstock.pipeline.progress_metrics import offsets_behind_latest
from penstock.pipeline.source import PenstockSource
from penstock.testing.process import BrokerProcess

HOUR_MS = 3_600_000
SESSION = InProcess()()


def offsets(reader: DataSourceReader, filters: list[Filter]) -> int:
    """Number of offsets that are read with these filters. All filters are left for Spark to apply again."""
    assert list(reader.pushFilters(filters)) == filters
    return sum(len(each.range) for each in reader.partitions())  # type: ignore[attr-defined, misc]


def since(hours: int) -> datetime:
    return datetime.fromtimestamp((START_MS + hours * HOUR_MS) / 1000, UTC)


def test_first_timestamp_partition_and_offset_limit_what_is_read(
    penstock_session_broker: BrokerProcess, tmp_path: Path
) -> None:
    bootstrap, place = penstock_session_broker.bootstrap, tmp_path / "archive"
    make(bootstrap, "pushed")
    produce(bootstrap, "pushed", range(100))
    archive(SESSION, job(bootstrap, place, "pushed"))
    delete_records(bootstrap, "pushed", 0, 25)
    produce(bootstrap, "pushed", range(100, 120))
    given = {"bootstrap": bootstrap, "subscribe": "pushed", "filterPushdown": "true"}

    def reader(**more: str) -> DataSourceReader:
        source = PenstockSource({**given, **more})
        return source.reader(StructType())

    log, both = reader(), reader(archive=str(place))
    assert offsets(log, []) == 95
    assert offsets(both, []) == 120
    assert offsets(both, [GreaterThanOrEqual(("timestamp",), since(90))]) == 30
    assert offsets(log, [GreaterThanOrEqual(("timestamp",), since(110))]) == 10
    assert offsets(log, [GreaterThanOrEqual(("timestamp",), since(500))]) == 0
    assert offsets(both, [EqualTo(("partition",), 0), LessThan(("offset",), 10)]) == 10
    assert offsets(both, [LessThan(("timestamp",), since(1))]) == 120


def test_progress_has_the_metrics_of_the_kafka_source() -> None:
    def position(*ends: int) -> str:
        places = ", ".join(f'"{number}": {end}' for number, end in enumerate(ends))
        return f'{{"offsets": {{"t": {{{places}}}}}, "topic_ids": {{"t": "1"}}}}'

    source = {"endOffset": position(5, 10), "latestOffset": position(8, 10)}
    assert offsets_behind_latest({"sources": [source]}) == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "3",
        "avgOffsetsBehindLatest": "1.5",
    }
    assert offsets_behind_latest({"sources": [{"endOffset": None, "latestOffset": None}]}) == {}
