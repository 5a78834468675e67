"""Files of tasks that the driver does not see completely: nothing is committed, truncated or released."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from archive_helpers import delete, job, make, numbers, produce, rows, starts
from deltalake import DeltaTable
from in_process import InProcess, _Work
from pyspark.sql import SparkSession

from penstock.clock import SystemClock
from penstock.pipeline.archive.archiver import ArchiveJob, Archiver
from penstock.pipeline.archive.maintenance import maintain
from penstock.pipeline.archive.table import ArchiveTable, FilesMissing
from penstock.pipeline.archive.topic_admin import ARCHIVE_OFFSETS, topic_settings
from penstock.pipeline.delta_writer import TableRefused, overwrite
from penstock.pipeline.table_store import store_at
from penstock.testing.process import BrokerProcess

Damage = Callable[[Path], None]


def remove(file: Path) -> None:
    """Damage a file as a driver sees it if the worker wrote to a directory of its own with the same name."""
    file.unlink()


def remove_directory(file: Path) -> None:
    for each in file.parent.iterdir():
        each.unlink()
    file.parent.rmdir()


def shorten(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


class Unshared(InProcess):
    """Session in which the driver sees the first new file of the tasks damaged."""

    def __init__(self, place: Path, damage: Damage) -> None:
        super().__init__()
        self._place = place
        self._damage = damage

    def parallelize(self, items: Iterable[Any], slices: int) -> _Work:
        before = set(self._place.rglob("*.parquet"))
        outer = self

        class Damaged(_Work):
            def collect(self) -> list[Any]:
                outer._damage(min(set(outer._place.rglob("*.parquet")) - before))
                return super().collect()

            def map(self, task: Callable[[Any], Any]) -> _Work:
                return Damaged(_Work.collect(super().map(task)), 1)

            def flatMap(self, task: Callable[[Any], list[Any]]) -> _Work:
                return Damaged(_Work.collect(_Work(self._items, 1).flatMap(task)), 1)

        return Damaged(list(items), 1)


@pytest.fixture
def bootstrap(penstock_session_broker: BrokerProcess) -> str:
    return penstock_session_broker.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"unshared-{uuid4().hex[:8]}"
    make(bootstrap, name, archive_required="true")
    produce(bootstrap, name, range(50))
    return name


def truncating(bootstrap: str, place: Path, topic: str) -> ArchiveJob:
    return job(bootstrap, place, topic, truncates=True, grace_ms=-1000)


def released(bootstrap: str, topic: str) -> str:
    return topic_settings(bootstrap, [topic], [ARCHIVE_OFFSETS])[topic].get(ARCHIVE_OFFSETS) or ""


@pytest.mark.parametrize("damage", [remove, remove_directory, shorten])
def test_file_the_driver_does_not_see_is_not_committed(
    bootstrap: str, topic: str, tmp_path: Path, damage: Damage
) -> None:
    work = truncating(bootstrap, tmp_path, topic)
    with pytest.raises(FilesMissing, match=rf"{tmp_path}/topic={topic}.*do not share {tmp_path}"):
        list(Archiver(work, Unshared(tmp_path, damage), pytest.fail).run())
    assert rows(tmp_path) == []
    assert starts(bootstrap, topic) == {0: 0, 1: 0}
    assert released(bootstrap, topic) == ""
    list(Archiver(work, InProcess(), pytest.fail).run())
    assert numbers(rows(tmp_path)) == list(range(50))
    assert starts(bootstrap, topic) == {0: 25, 1: 25}


@pytest.mark.parametrize("damage", [remove, shorten])
def test_merged_file_the_driver_does_not_see_replaces_nothing(
    bootstrap: str, topic: str, tmp_path: Path, damage: Damage
) -> None:
    work = job(bootstrap, tmp_path, topic)
    list(Archiver(work, InProcess(), pytest.fail).run())
    produce(bootstrap, topic, range(50, 60))
    list(Archiver(work, InProcess(), pytest.fail).run())
    with pytest.raises(FilesMissing, match="do not share"):
        maintain(work.table, Unshared(tmp_path, damage), None, worthwhile=2)
    assert numbers(rows(tmp_path)) == list(range(60))


@pytest.mark.parametrize("damage", [remove, shorten])
def test_archive_that_lost_a_file_releases_nothing(
    bootstrap: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Damage
) -> None:
    work = truncating(bootstrap, tmp_path, topic)
    with monkeypatch.context() as patch:
        # An archiver that dies right after its commit has released nothing yet.
        patch.setattr(Archiver, "_release", lambda *_: None)
        list(Archiver(work, InProcess(), pytest.fail).run())
    damage(min(tmp_path.rglob("*.parquet")))
    with pytest.raises(FilesMissing, match=r"is not complete: .*Nothing is truncated or released"):
        list(Archiver(work, InProcess(), pytest.fail).run())
    assert starts(bootstrap, topic) == {0: 0, 1: 0}
    assert released(bootstrap, topic) == ""


def test_files_of_truncated_records_are_not_checked(bootstrap: str, topic: str, tmp_path: Path) -> None:
    work = truncating(bootstrap, tmp_path, topic)
    list(Archiver(work, InProcess(), pytest.fail).run())
    for file in tmp_path.rglob("*.parquet"):
        file.unlink()
    produce(bootstrap, topic, range(50, 60))
    list(Archiver(work, InProcess(), pytest.fail).run())
    assert starts(bootstrap, topic) == {0: 30, 1: 30}


def test_topic_created_again_during_a_run_is_not_truncated(
    bootstrap: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = ArchiveTable.commit

    def made_again(*arguments: Any) -> None:
        commit(*arguments)
        delete(bootstrap, topic)
        make(bootstrap, topic, archive_required="true")
        produce(bootstrap, topic, range(100, 200))

    monkeypatch.setattr(ArchiveTable, "commit", made_again)
    list(Archiver(truncating(bootstrap, tmp_path, topic), InProcess(), pytest.fail).run())
    assert starts(bootstrap, topic) == {0: 0, 1: 0}
    assert released(bootstrap, topic) == ""


@pytest.mark.parametrize("damage", [remove, shorten])
def test_table_file_the_driver_does_not_see_replaces_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Damage
) -> None:
    place = tmp_path / "table"
    assert overwrite(spark.range(10).toDF("number"), store_at(str(place))) == 10
    before = set(place.glob("*.parquet"))
    now_ms = SystemClock.now_ms

    def damaged(clock: Any) -> int:
        damage(min(set(place.glob("*.parquet")) - before))
        return now_ms(clock)

    monkeypatch.setattr(SystemClock, "now_ms", damaged)
    with pytest.raises(TableRefused, match=f"do not share {place}"):
        overwrite(spark.range(10, 30).toDF("number"), store_at(str(place)))
    assert sorted(row["number"] for row in rows_of(place)) == list(range(10))


def rows_of(place: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(place)).to_pyarrow_table().to_pylist()
    return found
