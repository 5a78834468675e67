"""Results of queries as CSV and as bars."""

from __future__ import annotations

import pytest

from penstock.cli.failures import Failure
from penstock.cli.pipeline.options import parse_conf
from penstock.cli.pipeline.result_format import ResultFormat, bars, show_result
from penstock.cli.pipeline.schema_option import subscription_of


def test_csv_quotes_and_leaves_nulls_empty(capsys: pytest.CaptureFixture[str]) -> None:
    show_result(["name", "n"], [['a,"b"', 1], [None, 2]], ResultFormat.CSV)
    assert capsys.readouterr().out == 'name,n\n"a,""b""",1\n,2\n'


def test_bars_have_labels_and_lengths_in_proportion() -> None:
    first, second = bars(["city", "n"], [["Rome", 10], ["Oslo", 5]], 60)
    assert first.startswith("Rome  ")
    assert first.count("█") == 2 * second.count("█")
    assert second.endswith(" 5")


def test_result_without_numbers_cannot_be_drawn() -> None:
    with pytest.raises(Failure, match="nothing to draw"):
        bars(["city"], [["Rome"]], 60)


def test_settings_of_spark_are_checked() -> None:
    assert parse_conf(["spark.executor.memory=4g", "spark.x=a=b"]) == {
        "spark.executor.memory": "4g",
        "spark.x": "a=b",
    }
    for wrong in ("spark.executor.memory", "memory=4g"):
        with pytest.raises(Failure, match="not a setting of Spark"):
            parse_conf([wrong])


def test_topics_with_other_characters_than_names_are_a_pattern() -> None:
    assert subscription_of("orders,pay-ments") == {"subscribe": "orders,pay-ments"}
    assert subscription_of("orders-.*") == {"subscribePattern": "orders-.*"}
