"""Statistics as a stream to a table and a topic, and charts of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from archive_helpers import START_MS, make
from confluent_kafka import Consumer, Producer, TopicPartition
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from penstock.pipeline import stats
from penstock.pipeline.charts import in_terminal, to_png
from penstock.pipeline.stats import SCHEMA, StatsJob, start
from penstock.pipeline.stats_outputs import write_to_table, write_to_topic
from penstock.pipeline.table_store import store_at
from penstock.testing.process import BrokerProcess

MINUTE_MS = 60_000


def windows(place: Path) -> list[dict[str, Any]]:
    rows = DeltaTable(str(place)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["window_start"]))


def produce(bootstrap: str, topic: str, times_ms: list[int]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, time_ms in enumerate(times_ms):
        producer.produce(topic, b"x" * 10, b"k%d" % (number % 5), timestamp=time_ms)
    assert producer.flush(30) == 0


def test_closed_windows_are_counted_once(
    spark: SparkSession, penstock_session_broker: BrokerProcess, tmp_path: Path, topic_name: str
) -> None:
    bootstrap = penstock_session_broker.bootstrap
    source, target = topic_name, f"{topic_name}-stats"
    make(bootstrap, source)
    make(bootstrap, target, 1)
    work = StatsJob(bootstrap, (source,), str(tmp_path / "stats"), to_topic=target)

    def run() -> list[dict[str, Any]]:
        assert start(spark, work, once=True).awaitTermination(100)
        return windows(tmp_path / "stats")

    produce(bootstrap, source, [START_MS + second * 1000 for second in range(90)])
    produce(bootstrap, source, [START_MS + 10 * MINUTE_MS])
    first, second = run()
    begin = datetime.fromtimestamp(START_MS / 1000, UTC)
    assert first["window_start"] == begin
    assert (first["records"], first["bytes"], first["keys"]) == (60, 60 * 12, 5)
    assert first["latency_ms_p50"] is None
    assert (second["window_end"], second["records"]) == (begin + timedelta(minutes=2), 30)
    produce(bootstrap, source, [START_MS + 20 * MINUTE_MS])
    third = run()[-1]
    assert (third["records"], third["window_start"]) == (1, begin + timedelta(minutes=10))
    assert len(run()) == 3
    found = read_json(bootstrap, target)
    assert [each["records"] for each in found] == [60, 30, 1]
    assert found[0]["window_start"] == begin.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_query_death_between_table_and_topic_counts_each_window_once(
    spark: SparkSession,
    penstock_session_broker: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    topic_name: str,
) -> None:
    bootstrap = penstock_session_broker.bootstrap
    source, target = topic_name, f"{topic_name}-stats"
    make(bootstrap, source)
    make(bootstrap, target, 1)
    work = StatsJob(bootstrap, (source,), str(tmp_path / "stats"), to_topic=target)
    produce(bootstrap, source, [START_MS + second * 1000 for second in range(90)])
    produce(bootstrap, source, [START_MS + 10 * MINUTE_MS])

    def dying(*arguments: Any) -> None:
        write_to_table(*arguments)
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(stats, "write_to_table", dying)
        with pytest.raises(StreamingQueryException, match="killed"):
            start(spark, work, once=True).awaitTermination(100)
    assert start(spark, work, once=True).awaitTermination(100)
    assert [window["records"] for window in windows(tmp_path / "stats")] == [60, 30]
    assert [each["records"] for each in read_json(bootstrap, target)] == [60, 30]


def read_json(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "measures", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append(json.loads(message.value()))
    consumer.close()
    return found


ROWS = [
    {
        "window_start": datetime(2026, 1, 1, 0, minute, tzinfo=UTC),
        "window_end": datetime(2026, 1, 1, 0, minute + 1, tzinfo=UTC),
        "topic": topic,
        "records": minute * 10,
        "bytes": minute,
        "keys": 1,
        "latency_ms_p50": 1.0,
        "latency_ms_p95": 2.0,
        "latency_ms_p99": None,
    }
    for topic in ("a", "b")
    for minute in range(9)
]


def test_repeated_batch_is_written_once(
    penstock_session_broker: BrokerProcess, tmp_path: Path, topic_name: str
) -> None:
    """A batch is repeated after a crash between the write and Spark's checkpoint."""
    bootstrap = penstock_session_broker.bootstrap
    make(bootstrap, topic_name, 1)
    table = pa.Table.from_pylist(ROWS[:2], schema=SCHEMA)
    for number in (0, 0, 1, 1, 0):
        write_to_table(store_at(str(tmp_path / "stats")), "query", table, number)
        write_to_topic(bootstrap, topic_name, "query", table, number)
    assert len(windows(tmp_path / "stats")) == 4
    assert len(read_json(bootstrap, topic_name)) == 4


def test_terminal_chart_has_a_line_for_each_topic() -> None:
    assert in_terminal(ROWS, "records", 5) == [
        "a  ▄▅▆▇█  highest 80, last 80",
        "b  ▄▅▆▇█  highest 80, last 80",
    ]


@pytest.mark.usefixtures("starts_processes")  # matplotlib starts fc-list when it has no font cache
def test_chart_is_a_png(tmp_path: Path) -> None:
    to_png(ROWS, str(tmp_path / "chart.png"))
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
