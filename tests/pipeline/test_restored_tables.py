"""Tables that others restored to an older version: noticed by the archiver, and told apart from harmless restores."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from archive_helpers import job, make, numbers, produce, rows
from deltalake import CommitProperties, DeltaTable, write_deltalake
from in_process import InProcess

from penstock.pipeline.archive.archiver import Archiver
from penstock.pipeline.archive.table import ArchiveError
from penstock.pipeline.restored import WRITER, lost_version
from penstock.pipeline.table_store import Store, store_at
from penstock.testing.process import BrokerProcess


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Table with versions 0 to 3, of which 0 and 2 are of this writer."""
    store = store_at(str(tmp_path / "table"))
    for number, writer in enumerate(("us", "others", "us", "others")):
        commit = CommitProperties(custom_metadata={WRITER: writer})
        write_deltalake(store.uri, pa.table({"id": [number]}), mode="append", commit_properties=commit)
    return store


def lost(store: Store) -> int | None:
    return lost_version(DeltaTable(store.uri), store, "us")


def restore(store: Store, version: int | datetime) -> None:
    DeltaTable(store.uri).restore(version)


def test_restore_loses_only_versions_behind_its_target(store: Store) -> None:
    assert lost(store) is None
    restore(store, 2)
    assert lost(store) is None, "rows of others are missing, ours are not"
    restore(store, 1)
    assert lost(store) == 2
    write_deltalake(store.uri, pa.table({"id": [9]}), mode="append")
    assert lost(store) == 2, "a commit of others on top changes nothing"
    restore(store, 4)
    assert lost(store) is None, "the state of version 4 is that of version 2"
    assert lost_version(DeltaTable(store.uri), store, "a writer without commits") is None


def test_restore_to_a_time_is_noticed(store: Store) -> None:
    written_ms = {each["version"]: each["timestamp"] for each in DeltaTable(store.uri).history()}
    before = Path(store.uri) / "_delta_log" / f"{2:020}.json"
    assert before.exists()
    restore(store, datetime.fromtimestamp((written_ms[2] - 1) / 1000, UTC))
    assert lost(store) == 2


def test_archiver_stops_at_a_restored_archive(penstock_session_broker: BrokerProcess, tmp_path: Path) -> None:
    bootstrap, place = penstock_session_broker.bootstrap, tmp_path / "archive"
    make(bootstrap, "restored")
    for first in (0, 10):
        produce(bootstrap, "restored", range(first, first + 10))
        list(Archiver(job(bootstrap, place, "restored"), InProcess(), pytest.fail).run())
    newest = DeltaTable(str(place)).version()
    DeltaTable(str(place)).restore(newest - 1)
    produce(bootstrap, "restored", range(20, 30))
    with pytest.raises(ArchiveError, match=f"rows that version {newest} added are missing"):
        list(Archiver(job(bootstrap, place, "restored"), InProcess(), pytest.fail).run())
    assert numbers(rows(place)) == list(range(10))
    DeltaTable(str(place)).restore(newest)
    list(Archiver(job(bootstrap, place, "restored"), InProcess(), pytest.fail).run())
    assert numbers(rows(place)) == list(range(30))
