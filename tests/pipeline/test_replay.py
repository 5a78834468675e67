"""Replay into another topic with a real Spark and a real broker."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from archive_helpers import START_MS, archive, delete_records, job, make, produce, read_topic
from pyspark.sql import SparkSession

from penstock.pipeline import replay_writer
from penstock.pipeline.options import OptionError, parse
from penstock.pipeline.replay import ReplayJob, replay
from penstock.pipeline.replay_writer import ORIGINAL_TIMESTAMP
from penstock.testing.process import BrokerProcess


@pytest.fixture
def bootstrap(penstock_session_broker: BrokerProcess) -> str:
    return penstock_session_broker.bootstrap


def run(spark: SparkSession, bootstrap: str, source: dict[str, str], target: str, **settings: Any) -> int:
    """Run a replay. Returns the number of records written."""
    options = parse({"bootstrap": bootstrap, **source})
    *_, done = replay(ReplayJob(options, target, **settings), lambda: spark)
    return done.written


def test_archive_and_log_are_replayed_in_order_and_once(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    make(bootstrap, "source")
    make(bootstrap, "copy", 3)
    produce(bootstrap, "source", range(60))
    archive(spark, job(bootstrap, tmp_path / "archive", "source"))
    for partition in (0, 1):
        delete_records(bootstrap, "source", partition, 15)
    produce(bootstrap, "source", range(60, 100))
    source = {"subscribe": "source", "archive": str(tmp_path / "archive")}
    assert run(spark, bootstrap, source, "copy", offsets_a_round=30) == 100
    assert run(spark, bootstrap, source, "copy") == 0
    produce(bootstrap, "source", range(100, 110))
    assert run(spark, bootstrap, source, "copy") == 10
    found = read_topic(bootstrap, "copy")
    assert sorted(record.number for record in found) == list(range(110))
    for key in {record.key for record in found}:
        of_key = [record for record in found if record.key == key]
        assert len({record.partition for record in of_key}) == 1
        by_offset = sorted(of_key, key=lambda record: record.offset)
        assert [record.number for record in by_offset] == sorted(record.number for record in of_key)
    one = next(record for record in found if record.number == 7)
    assert (one.timestamp_ms, one.headers) == (START_MS + 7 * 3_600_000, {"number": b"7"})


def test_time_range_and_filter_select_replayed_records(spark: SparkSession, bootstrap: str) -> None:
    make(bootstrap, "chosen-from")
    make(bootstrap, "chosen-to")
    produce(bootstrap, "chosen-from", range(100))
    source = {
        "subscribe": "chosen-from",
        "startingTimestamp": str(START_MS + 20 * 3_600_000),
        "endingTimestamp": str(START_MS + 60 * 3_600_000),
    }
    assert run(spark, bootstrap, source, "chosen-to", where="key = 'key 3' or value like '%5'") == 8
    numbers = sorted(record.number for record in read_topic(bootstrap, "chosen-to"))
    assert numbers == [n for n in range(20, 60) if n % 10 in (3, 5)]


def test_timestamp_beyond_retention_is_kept_in_a_header(spark: SparkSession, bootstrap: str) -> None:
    make(bootstrap, "old-from", 1)
    make(bootstrap, "old-to", 1, retention_ms="86400000")
    produce(bootstrap, "old-from", range(3), 1)
    began_ms = time.time() * 1000
    assert run(spark, bootstrap, {"subscribe": "old-from"}, "old-to") == 3
    record = read_topic(bootstrap, "old-to")[0]
    assert record.timestamp_ms >= began_ms - 1000
    assert record.headers == {"number": b"0", ORIGINAL_TIMESTAMP: b"%d" % START_MS}


def test_replay_respects_rate_limit(
    spark: SparkSession, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(bootstrap, "fast-from", 1)
    make(bootstrap, "fast-to", 1)
    produce(bootstrap, "fast-from", range(100), 1)
    began = time.monotonic()
    assert run(spark, bootstrap, {"subscribe": "fast-from"}, "fast-to", rows_per_second=100) == 100
    assert time.monotonic() - began >= 1.0


def test_fenced_attempt_writes_nothing_more(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two attempts of one task at the same time: speculation, or an abandoned task that still runs."""
    from penstock.pipeline.columns import ALL
    from penstock.pipeline.fetching import read_range
    from penstock.pipeline.offsets import topics_of
    from penstock.pipeline.ranges import OffsetRange
    from penstock.pipeline.read_settings import ReadSettings

    make(bootstrap, "twice-from", 1)
    make(bootstrap, "twice-to", 1)
    produce(bootstrap, "twice-from", range(50), 1)
    [topic] = topics_of(parse({"bootstrap": bootstrap, "subscribe": "twice-from"})).values()
    target = replay_writer.ReplayTarget(
        bootstrap, "twice-to", 1, "twice", {"twice-from": topic.id}, None, None
    )
    monkeypatch.setattr(replay_writer, "_TRANSACTION_ROWS", 10)

    def rows(up_to: int) -> list[object]:
        wanted = OffsetRange("twice-from", topic.id, 0, 0, up_to)
        return list(read_range(ReadSettings(bootstrap), wanted, ALL))

    def interrupted() -> object:
        yield from rows(25)  # two transactions, and the beginning of a third
        assert sum(each["written"][0].as_py() for each in replay_writer.write_rows(target, rows(40))) == 20
        yield from rows(50)

    with pytest.raises(replay_writer.ReplayFailed):
        list(replay_writer.write_rows(target, interrupted()))  # type: ignore[arg-type]
    assert sum(each["written"][0].as_py() for each in replay_writer.write_rows(target, rows(50))) == 10
    assert [record.number for record in read_topic(bootstrap, "twice-to")] == list(range(50))


def test_replay_into_itself_or_missing_topic_is_refused(spark: SparkSession, bootstrap: str) -> None:
    make(bootstrap, "itself")
    with pytest.raises(OptionError, match="cannot be replayed into itself"):
        run(spark, bootstrap, {"subscribe": "itself"}, "itself")
    with pytest.raises(OptionError, match="there is no topic"):
        run(spark, bootstrap, {"subscribe": "itself"}, "nowhere-to")
