"""Declared pipelines that meet a full disk, expired credentials, changed tables and changed definitions: a clear
reason, nothing half committed, and each row once after the cause is removed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from archive_helpers import make
from declared_helpers import declared, run_once, send
from deltalake import DeltaTable
from object_stores import BUCKET, expiring_server
from pyspark.sql import SparkSession

from penstock.declared.definition import PipelineDefinition
from penstock.pipeline.causes import cause_of
from penstock.pipeline.delta_writer import TableRefused
from penstock.pipeline.table_append import append
from penstock.pipeline.table_store import storage_options, store_at
from penstock.testing.process import BrokerProcess

ROWS = 40
SCHEMA = "id bigint, total double"


def orders(bootstrap: str, topic: str, first: int = 0) -> None:
    send(bootstrap, topic, [{"id": number, "total": 1.0} for number in range(first, first + ROWS)])


def ids(place: str) -> list[int]:
    options = storage_options(store_at(place))
    if not DeltaTable.is_deltatable(place, options):
        return []
    return sorted(DeltaTable(place, storage_options=options).to_pyarrow_table()["id"].to_pylist())


def copying(topic: str, table: str, **document: Any) -> PipelineDefinition:
    wanted = {"name": topic, "source": {"topics": [topic]}, "schema": SCHEMA, "target": {"table": table}}
    return declared(**{**wanted, "transform": {"sql": "select id, total from source"}, **document})


def failure(
    spark: SparkSession, bootstrap: str, definition: PipelineDefinition, directory: Path, **options: Any
) -> str:
    with pytest.raises(Exception) as caught:
        run_once(spark, bootstrap, definition, directory, **options)
    return cause_of(caught.value)


@pytest.fixture
def small_disk(starts_processes: None, tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB. Skips the test if it may not be mounted."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a file system is not permitted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_full_disk_commits_nothing_and_rows_are_written_once_with_space(
    spark: SparkSession, penstock_session_broker: BrokerProcess, small_disk: Path, tmp_path: Path
) -> None:
    bootstrap, table = penstock_session_broker.bootstrap, str(small_disk / "table")
    make(bootstrap, "bad-disk")
    orders(bootstrap, "bad-disk")
    definition = copying("bad-disk", table)
    run_once(spark, bootstrap, definition, tmp_path)
    ballast = small_disk / "ballast"
    space = os.statvfs(small_disk)
    ballast.write_bytes(bytes(space.f_bavail * space.f_bsize))
    orders(bootstrap, "bad-disk", ROWS)
    assert "No space left on device" in failure(spark, bootstrap, definition, tmp_path)
    assert ids(table) == list(range(ROWS))
    ballast.unlink()
    run_once(spark, bootstrap, definition, tmp_path)
    assert ids(table) == list(range(2 * ROWS))


def test_expired_credentials_are_named_and_rows_are_written_once_with_new_ones(
    spark: SparkSession,
    penstock_session_broker: BrokerProcess,
    starts_processes: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bootstrap, flag = penstock_session_broker.bootstrap, tmp_path / "expired"
    make(bootstrap, "bad-credentials")
    orders(bootstrap, "bad-credentials")
    with expiring_server(flag) as settings:
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        table = f"s3://{BUCKET}/table"
        definition = copying("bad-credentials", table)
        run_once(spark, bootstrap, definition, tmp_path)
        orders(bootstrap, "bad-credentials", ROWS)
        flag.touch()
        assert "token has expired" in failure(spark, bootstrap, definition, tmp_path)
        flag.unlink()
        assert ids(table) == list(range(ROWS))
        run_once(spark, bootstrap, definition, tmp_path)
        assert ids(table) == list(range(2 * ROWS))


def test_table_that_others_deleted_is_not_silently_made_again(
    spark: SparkSession, penstock_session_broker: BrokerProcess, tmp_path: Path
) -> None:
    bootstrap, table = penstock_session_broker.bootstrap, tmp_path / "table"
    make(bootstrap, "bad-deleted")
    orders(bootstrap, "bad-deleted")
    definition = copying("bad-deleted", str(table))
    run_once(spark, bootstrap, definition, tmp_path)
    table.rename(tmp_path / "elsewhere")
    orders(bootstrap, "bad-deleted", ROWS)
    reason = failure(spark, bootstrap, definition, tmp_path, last_batch=0)
    assert "was deleted or replaced" in reason
    assert not table.exists()
    (tmp_path / "elsewhere").rename(table)
    run_once(spark, bootstrap, definition, tmp_path, last_batch=0)
    assert ids(str(table)) == list(range(2 * ROWS))


def test_table_that_others_restored_to_an_older_version_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = store_at(str(tmp_path / "table"))
    for number in range(3):
        append(spark.sql(f"select {number} as id"), store, "query", number)
    newest = DeltaTable(store.uri).version()
    DeltaTable(store.uri).restore(newest - 1)
    with pytest.raises(TableRefused, match=f"was restored .* rows that version {newest} added are missing"):
        append(spark.sql("select 3 as id"), store, "query", 3, last_batch=2)
    assert ids(store.uri) == [0, 1]
    DeltaTable(store.uri).restore(newest)
    assert append(spark.sql("select 3 as id"), store, "query", 3, last_batch=2) == 1
    assert ids(store.uri) == [0, 1, 2, 3]


def test_table_that_others_replaced_by_an_older_copy_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "table"
    store = store_at(str(place))
    append(spark.sql("select 0 as id"), store, "query", 0)
    shutil.copytree(place, tmp_path / "older")
    append(spark.sql("select 1 as id"), store, "query", 1)
    shutil.rmtree(place)
    (tmp_path / "older").rename(place)
    with pytest.raises(TableRefused, match="older copy: it has the rows up to batch 0, not up to batch 1"):
        append(spark.sql("select 2 as id"), store, "query", 2, last_batch=1)


def test_rules_of_others_are_kept_or_named(spark: SparkSession, tmp_path: Path) -> None:
    store = store_at(str(tmp_path / "constrained"))
    append(spark.sql("select 1 as id"), store, "query", 0)
    DeltaTable(store.uri).alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(TableRefused, match="has the constraint 'positive', which is not checked here"):
        append(spark.sql("select -1 as id"), store, "query", 1)
    strict = store_at(str(tmp_path / "strict"))
    append(spark.sql("select 1 as id"), strict, "query", 0)
    assert not DeltaTable(strict.uri).schema().fields[0].nullable
    with pytest.raises(Exception, match=r"'id' of .* must not be null"):
        append(spark.sql("select cast(null as int) as id"), strict, "query", 1)
    with pytest.raises(TableRefused, match="the rows do not have it"):
        append(spark.sql("select 'x' as name"), strict, "query", 1)
    assert ids(strict.uri) == [1]


def test_commits_of_others_between_batches_do_not_disturb(spark: SparkSession, tmp_path: Path) -> None:
    store = store_at(str(tmp_path / "table"))
    assert append(spark.sql("select 1 as id"), store, "query", 0) == 1
    table = DeltaTable(store.uri)
    table.delete("id = 1")
    table.optimize.compact()
    assert append(spark.sql("select 2 as id"), store, "query", 1, last_batch=0) == 1
    assert ids(store.uri) == [2]


@pytest.mark.parametrize(
    "changed",
    [
        "select window.start as start, id, count(*) as n from source group by window(timestamp, '1 minute'), id",
        "select id, total from source",
    ],
)
def test_definition_that_does_not_fit_its_checkpoint_says_so(
    spark: SparkSession, penstock_session_broker: BrokerProcess, tmp_path: Path, changed: str
) -> None:
    bootstrap = penstock_session_broker.bootstrap
    topic = f"bad-change-{len(changed)}"
    make(bootstrap, topic)
    orders(bootstrap, topic)

    def definition(sql: str) -> PipelineDefinition:
        transform = {"sql": sql, "watermark": {"column": "timestamp", "delay": "1s"}}
        return copying(topic, str(tmp_path / "table"), transform=transform)

    counting = (
        "select window.start as start, count(*) as n from source group by window(timestamp, '1 minute')"
    )
    run_once(spark, bootstrap, definition(counting), tmp_path)
    orders(bootstrap, topic, ROWS)
    reason = failure(spark, bootstrap, definition(changed), tmp_path)
    assert "does not match its checkpoint" in reason, reason
    assert "delete the pipeline and apply it again" in reason
    run_once(spark, bootstrap, definition(counting), tmp_path)
