"""`create table ... using penstock` in Spark's catalog: reading and `insert` with a real Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from archive_helpers import make
from declared_helpers import messages, send
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.testing.process import BrokerProcess

TABLES = ("catalog_orders", "catalog_typed", "catalog_pattern", "catalog_bare")


@pytest.fixture
def bootstrap(spark: SparkSession, penstock_session_broker: BrokerProcess) -> Iterator[str]:
    yield penstock_session_broker.bootstrap
    for table in TABLES:
        spark.sql(f"drop table if exists {table}")


def create(spark: SparkSession, table: str, **options: str) -> None:
    given = ", ".join(f"'{name.replace('_', '.')}' '{value}'" for name, value in options.items())
    spark.sql(f"create table {table} using penstock options ({given})")


def test_table_of_the_catalog_is_read_and_inserted_into(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    make(bootstrap, "catalog-orders")
    create(spark, "catalog_orders", kafka_bootstrap_servers=bootstrap, subscribe="catalog-orders")
    spark.sql("insert into catalog_orders (key, value) values (cast('k' as binary), cast('v' as binary))")
    spark.sql("insert into catalog_orders by name select cast(id as string) :: binary as value from range(5)")
    frame = spark.range(2).selectExpr("cast('k' as binary) as key", "cast('w' as binary) as value")
    frame.writeTo("catalog_orders").append()
    found = spark.sql(
        "select cast(value as string) as value from catalog_orders where topic = 'catalog-orders'"
    )
    assert sorted(row.value for row in found.collect()) == ["0", "1", "2", "3", "4", "v", "w", "w"]
    assert len(messages(bootstrap, "catalog-orders")) == 8
    assert spark.table("catalog_orders").where("partition = 0 and key is null").count() <= 5
    later = spark.read.option("startingTimestamp", "4102444800000")
    later = later.option("startingOffsetsByTimestampStrategy", "latest")
    assert later.table("catalog_orders").count() == 0, "options of the read override those of the table"
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        spark.sql("insert overwrite catalog_orders (value) values (cast('v' as binary))")


def test_table_of_the_catalog_has_typed_columns(spark: SparkSession, bootstrap: str) -> None:
    make(bootstrap, "catalog-typed")
    send(bootstrap, "catalog-typed", [{"id": 1, "total": 2.5}, {"id": 2, "total": 1.5}, b"bad"])
    schema = "id bigint, total double"
    create(spark, "catalog_typed", bootstrap=bootstrap, subscribe="catalog-typed", valueSchema=schema)
    [row] = spark.sql("select sum(total) as total, count(value_error) as bad from catalog_typed").collect()
    assert (row.total, row.bad) == (4.0, 1)


def test_table_of_several_topics_needs_a_topic_for_inserts(spark: SparkSession, bootstrap: str) -> None:
    make(bootstrap, "catalog-several")
    create(spark, "catalog_pattern", bootstrap=bootstrap, subscribePattern="catalog-sev.*")
    with pytest.raises(PySparkException, match="has no topic"):
        spark.sql("insert into catalog_pattern (value) values (cast('v' as binary))")
    spark.sql("insert into catalog_pattern (value, topic) values (cast('v' as binary), 'catalog-several')")
    assert spark.table("catalog_pattern").count() == 1


def test_table_without_options_is_refused(spark: SparkSession, bootstrap: str) -> None:
    with pytest.raises(PySparkException, match="subscribe, subscribePattern and assign"):
        create(spark, "catalog_bare", bootstrap=bootstrap)
