"""Archive maintenance: merged files and deleted days, with unchanged rows."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from archive_helpers import START_MS, archive, job, make, numbers, produce, rows
from pyspark.sql import SparkSession

from penstock.pipeline.archive.maintenance import MaintenanceResult, maintain
from penstock.pipeline.archive.table import ArchiveTable
from penstock.testing.process import BrokerProcess


@pytest.fixture
def place(spark: SparkSession, penstock_session_broker: BrokerProcess, tmp_path: Path) -> Path:
    """Archive of three runs of forty hours in two partitions: files of six days for each partition, two days
    with two files.
    """
    bootstrap = penstock_session_broker.bootstrap
    topic = f"kept-{tmp_path.name}"
    make(bootstrap, topic)
    for first in (0, 40, 80):
        produce(bootstrap, topic, range(first, first + 40))
        archive(spark, job(bootstrap, tmp_path / "archive", topic))
    return tmp_path / "archive"


def test_merge_of_small_files_keeps_all_rows(spark: SparkSession, place: Path) -> None:
    table = ArchiveTable.at(str(place))
    before, files = rows(place), len(table.view().all_files())
    done = maintain(table, lambda: spark, None, worthwhile=2)
    assert done == MaintenanceResult(merged=8)
    assert len(table.view().all_files()) == files - 4
    assert rows(place) == before
    assert maintain(table, pytest.fail, None, worthwhile=2) == MaintenanceResult()


def test_merge_is_dropped_if_another_merge_commits_first(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ArchiveTable.at(str(place))
    before = rows(place)
    replace = ArchiveTable.replace

    def late(self: ArchiveTable, *arguments: object, **options: bool) -> None:
        monkeypatch.setattr(ArchiveTable, "replace", replace)
        assert maintain(table, lambda: spark, None, worthwhile=2).merged == 8
        replace(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ArchiveTable, "replace", late)
    assert maintain(table, lambda: spark, None, worthwhile=2).merged == 0
    assert rows(place) == before


def test_days_before_a_date_are_deleted(place: Path) -> None:
    table = ArchiveTable.at(str(place))
    third_day = datetime.fromtimestamp(START_MS / 1000 + 2 * 86_400, UTC).date()
    assert maintain(table, pytest.fail, third_day).expired > 0
    assert numbers(rows(place)) == list(range(48, 120))
