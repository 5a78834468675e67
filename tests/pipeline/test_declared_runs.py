"""Runs of declared pipelines: typed columns, transformations, dead letters, and each row once in every target."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from archive_helpers import make
from declared_helpers import SCHEMA, declared, messages, run_once, send
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.delta_writer import TableRefused
from penstock.pipeline.offsets import NoSuchTopic
from penstock.pipeline.running.transforming import TransformationFailed
from penstock.testing.process import BrokerProcess


def add_vat(rows: DataFrame) -> DataFrame:
    return rows.select("key", "id", (f.col("total") * 1.2).alias("gross"))


def rank(rows: DataFrame) -> DataFrame:
    """Operations that a stream does not have: the largest order of the batch."""
    return rows.orderBy(f.desc("total")).limit(1).select("id", "total")


def fail(rows: DataFrame) -> DataFrame:
    raise ValueError("no such customer")


def nothing(rows: DataFrame) -> None:
    return None


def test_sql_writes_each_row_once_to_topic_and_table_and_bad_rows_to_dead_letters(
    spark: SparkSession, penstock_session_broker: BrokerProcess, tmp_path: Path
) -> None:
    bootstrap = penstock_session_broker.bootstrap
    for topic in ("dp-orders", "dp-clean", "dp-bad"):
        make(bootstrap, topic)
    definition = declared(
        name="clean",
        source={"topics": ["dp-orders"]},
        schema=SCHEMA,
        transform={"sql": "select key, id, upper(customer) as customer, total from source where total >= 0"},
        dead_letter="dp-bad",
        target={"topic": "dp-clean", "table": str(tmp_path / "clean")},
    )
    orders = [{"id": number, "customer": f"c{number}", "total": number - 10} for number in range(50)]
    send(bootstrap, "dp-orders", [*orders, b"not json", {"id": "x"}, {"total": 3}])
    run_once(spark, bootstrap, definition, tmp_path)
    run_once(spark, bootstrap, definition, tmp_path)
    send(bootstrap, "dp-orders", [{"id": 50, "customer": "last", "total": 1}])
    run_once(spark, bootstrap, definition, tmp_path)

    wanted = list(range(10, 51))
    values = [json.loads(each.value()) for each in messages(bootstrap, "dp-clean")]
    assert sorted(each["id"] for each in values) == wanted
    assert {each["customer"] for each in values} >= {"C10", "LAST"}
    rows = DeltaTable(str(tmp_path / "clean")).to_pyarrow_table().to_pylist()
    assert sorted(row["id"] for row in rows) == wanted
    bad = {each.value(): dict(each.headers() or ()) for each in messages(bootstrap, "dp-bad")}
    reasons = {value: headers["penstock-error"] for value, headers in bad.items()}
    assert reasons[b'{"id": "x"}'] == b"id: 'x' is not of type bigint"
    assert reasons[b'{"total": 3}'] == b"id is missing"
    assert len(bad) == len(messages(bootstrap, "dp-bad")) == 3
    assert bad[b"not json"]["penstock-source-topic"] == b"dp-orders"


def test_pipeline_functions_apply_to_streams_and_batches(
    spark: SparkSession, penstock_session_broker: BrokerProcess, tmp_path: Path
) -> None:
    bootstrap = penstock_session_broker.bootstrap
    make(bootstrap, "dp-functions")
    send(bootstrap, "dp-functions", [{"id": number, "total": number} for number in range(10)])
    source = {"topics": ["dp-functions"]}
    for name, function, mode in (("gross", "add_vat", "stream"), ("ranked", "rank", "batch")):
        definition = declared(
            name=name,
            source=source,
            schema=SCHEMA,
            transform={"function": f"test_declared_runs:{function}", "mode": mode},
            target={"table": str(tmp_path / f"{name}-table")},
        )
        run_once(spark, bootstrap, definition, tmp_path)
    gross = DeltaTable(str(tmp_path / "gross-table")).to_pyarrow_table().to_pylist()
    assert sorted(round(row["gross"], 1) for row in gross) == [round(number * 1.2, 1) for number in range(10)]
    assert DeltaTable(str(tmp_path / "ranked-table")).to_pyarrow_table().to_pylist() == [
        {"id": 9, "total": 9.0}
    ]


def test_windows_with_a_watermark_are_written_once_and_drawn(
    spark: SparkSession, penstock_session_broker: BrokerProcess, tmp_path: Path
) -> None:
    bootstrap = penstock_session_broker.bootstrap
    make(bootstrap, "dp-windows", 1)
    for minute in range(5):
        send(
            bootstrap,
            "dp-windows",
            [{"id": minute}] * (minute + 1),
            timestamp=1_760_000_045_000 + minute * 60_000,
        )
    definition = declared(
        name="windows",
        source={"topics": ["dp-windows"]},
        transform={
            "sql": "select window.start as minute, count(*) as orders from source "
            "group by window(timestamp, '1 minute')",
            "watermark": {"column": "timestamp", "delay": "1s"},
        },
        target={"table": str(tmp_path / "windows-table"), "chart": str(tmp_path / "windows.png")},
        schedule={"every": "1m"},
    )
    for _ in range(3):
        run_once(spark, bootstrap, definition, tmp_path)
    rows = DeltaTable(str(tmp_path / "windows-table")).to_pyarrow_table().to_pylist()
    assert sorted(row["orders"] for row in rows) == [1, 2, 3, 4]
    assert (tmp_path / "windows.png").read_bytes().startswith(b"\x89PNG")


def test_wrong_definitions_fail_with_the_reason_before_anything_is_written(
    spark: SparkSession, penstock_session_broker: BrokerProcess, tmp_path: Path
) -> None:
    bootstrap = penstock_session_broker.bootstrap
    make(bootstrap, "dp-wrong")
    send(bootstrap, "dp-wrong", [{"id": 1}])
    source, table = {"topics": ["dp-wrong"]}, {"table": str(tmp_path / "table")}

    def fails(problem: type[Exception], reason: str, **document: object) -> None:
        given = {"source": source, "target": table, "schema": SCHEMA, **document}
        with pytest.raises(problem, match=reason):
            run_once(spark, bootstrap, declared(**given), tmp_path / "wrong")

    fails(TransformationFailed, "no such customer", transform={"function": "test_declared_runs:fail"})
    fails(TransformationFailed, "returned NoneType", transform={"function": "test_declared_runs:nothing"})
    fails(TransformationFailed, "cannot be imported", transform={"function": "no_such_module:nothing"})
    fails(NoSuchTopic, "dp-nowhere", target={"topic": "dp-nowhere"})
    fails(TransformationFailed, "two columns", transform={"sql": "select id, id from source"})
    assert not (tmp_path / "table").exists()


def test_table_of_other_types_is_refused_and_new_columns_are_added(
    spark: SparkSession, penstock_session_broker: BrokerProcess, tmp_path: Path
) -> None:
    from penstock.pipeline.table_append import append
    from penstock.pipeline.table_store import store_at

    store = store_at(str(tmp_path / "table"))
    assert append(spark.sql("select 1 as id"), store, "query", 0) == 1
    assert append(spark.sql("select 1 as id"), store, "query", 0) == 0
    assert append(spark.sql("select 2 as id, 'new' as name"), store, "query", 1) == 1
    with pytest.raises(TableRefused, match=r"'id' .* has the type integer, not string"):
        append(spark.sql("select 'x' as id"), store, "query", 2)
    rows = DeltaTable(store.uri).to_pyarrow_table().to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == [{"id": 1, "name": None}, {"id": 2, "name": "new"}]
