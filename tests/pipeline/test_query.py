"""Topics as SQL tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from archive_helpers import archive, delete_records, job, make, produce
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from penstock.pipeline.options import OptionError
from penstock.pipeline.query import query
from penstock.testing.process import BrokerProcess


def test_sql_tables_include_archive_and_log(
    spark: SparkSession, penstock_session_broker: BrokerProcess, tmp_path: Path
) -> None:
    bootstrap = penstock_session_broker.bootstrap
    for topic in ("queried", "also-queried"):
        make(bootstrap, topic)
        produce(bootstrap, topic, range(50))
    place = tmp_path / "archive"
    archive(spark, job(bootstrap, place, "queried"))
    delete_records(bootstrap, "queried", 0, 20)
    sql = """
        select q.topic, count(*) as n from queried q join `also-queried` a
        on q.partition = a.partition and q.offset = a.offset group by q.topic
    """
    assert [(row.topic, row.n) for row in query(spark, bootstrap, sql, [], str(place)).collect()] == [
        ("queried", 50)
    ]
    assert query(spark, bootstrap, "select * from queried", ["queried"], None).count() == 30
    with pytest.raises(OptionError, match="there is no topic 'unheard-of'"):
        query(spark, bootstrap, "select 1", ["unheard-of"], None)
    with pytest.raises(AnalysisException, match="unheard_of"):
        query(spark, bootstrap, "select * from unheard_of", [], None)
