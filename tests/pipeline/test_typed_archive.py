"""Archives with typed columns: parsed beside the raw record, added later, kept by merges and erasure."""

from __future__ import annotations

from pathlib import Path

import pytest
from archive_helpers import archive, delete_records, job, make, rows
from declared_helpers import messages, send
from in_process import InProcess
from pyspark.sql import SparkSession

from penstock.declared.value_schema import parse_schema
from penstock.pipeline.archive.forgetting import ForgettingFailed, forget
from penstock.pipeline.archive.maintenance import maintain
from penstock.pipeline.archive.table import ArchiveError, ArchiveTable
from penstock.testing.process import BrokerProcess

SESSION: SparkSession = InProcess()()


def test_values_are_columns_beside_the_raw_record_and_columns_are_added(
    penstock_session_broker: BrokerProcess, tmp_path: Path
) -> None:
    bootstrap, place = penstock_session_broker.bootstrap, tmp_path / "archive"
    make(bootstrap, "ta-typed", 1)
    send(bootstrap, "ta-typed", [{"id": 1, "total": 2.5}, b"no json"])
    archive(SESSION, job(bootstrap, place, "ta-typed"))
    send(bootstrap, "ta-typed", [{"id": 2, "total": 3.5}, b"still no json"])
    archive(SESSION, job(bootstrap, place, "ta-typed", schema=parse_schema("id bigint not null")))
    send(bootstrap, "ta-typed", [{"id": 3, "total": 4.5}])
    wider = parse_schema("id bigint not null, total double")
    archive(SESSION, job(bootstrap, place, "ta-typed", schema=wider))
    found = rows(place)
    assert [row["id"] for row in found] == [None, None, 2, None, 3]
    assert [row["total"] for row in found] == [None, None, None, None, 4.5]
    assert [row["value"] for row in found][1:3] == [b"no json", b'{"id": 2, "total": 3.5}']
    assert [bool(row["value_error"]) for row in found] == [False, False, False, True, False]
    assert maintain(ArchiveTable.at(str(place)), lambda: SESSION, None, worthwhile=2).merged == 3
    assert rows(place) == found
    with pytest.raises(ArchiveError, match=r"'id' .* another type"):
        archive(SESSION, job(bootstrap, place, "ta-typed", schema=parse_schema("id string")))


def test_forget_removes_the_records_of_a_key_and_keeps_all_others(
    penstock_session_broker: BrokerProcess, tmp_path: Path
) -> None:
    bootstrap, place = penstock_session_broker.bootstrap, tmp_path / "archive"
    make(bootstrap, "ta-log", 2)
    make(bootstrap, "ta-compacted", 1, cleanup_policy="compact")
    for topic in ("ta-log", "ta-compacted"):
        send(bootstrap, topic, [{"id": number} for number in range(28)])
    schema = parse_schema("id bigint")
    archive(SESSION, job(bootstrap, place, "ta-log,ta-compacted", schema=schema))
    before = rows(place)
    files = set(place.rglob("*.parquet"))
    table = ArchiveTable.at(str(place))
    report = forget(bootstrap, table, b"k3", ["ta-log", "ta-compacted"], lambda: SESSION)
    assert [(each.topic, each.records, each.tombstone) for each in report.topics] == [
        ("ta-log", 4, False),
        ("ta-compacted", 4, True),
    ]
    assert rows(place) == [row for row in before if row["key"] != b"k3"]
    remaining = b"".join(each.read_bytes() for each in place.rglob("*.parquet"))
    assert remaining
    assert report.deleted_files == len(files - set(place.rglob("*.parquet"))) > 0
    last = messages(bootstrap, "ta-compacted")[-1]
    assert (last.key(), last.value()) == (b"k3", None)
    again = forget(bootstrap, table, b"k3", ["ta-log"], lambda: SESSION)
    assert again.records == 0
    with pytest.raises(ForgettingFailed, match="ta-nowhere"):
        forget(bootstrap, table, b"k3", ["ta-nowhere"], lambda: SESSION)


def test_archiver_continues_after_records_were_forgotten(
    penstock_session_broker: BrokerProcess, tmp_path: Path
) -> None:
    bootstrap, place = penstock_session_broker.bootstrap, tmp_path / "archive"
    make(bootstrap, "ta-continued", 1)
    send(bootstrap, "ta-continued", [{"id": number} for number in range(7)])
    archive(SESSION, job(bootstrap, place, "ta-continued"))
    forget(bootstrap, ArchiveTable.at(str(place)), b"k0", ["ta-continued"], lambda: SESSION)
    delete_records(bootstrap, "ta-continued", 0, 7)
    send(bootstrap, "ta-continued", [{"id": 7}])
    archive(SESSION, job(bootstrap, place, "ta-continued"))
    assert [row["offset"] for row in rows(place)] == [1, 2, 3, 4, 5, 6, 7]
