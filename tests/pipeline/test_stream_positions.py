"""Positions of a streaming query on a real broker, planned as Spark does, without Spark."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from archive_helpers import delete, make, produce
from confluent_kafka.admin import AdminClient, NewPartitions
from in_process import InProcess
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from penstock.errors import PenstockError
from penstock.pipeline import offsets
from penstock.pipeline.archive.archiver import ArchiveJob, Archiver
from penstock.pipeline.archive.table import ArchiveTable
from penstock.pipeline.archive.table_source import TableStreamReader
from penstock.pipeline.fetching import OffsetsLost
from penstock.pipeline.options import OptionError, parse
from penstock.pipeline.stream_reader import StreamReader
from penstock.testing.process import BrokerProcess

Position = dict[str, Any]
Read = dict[str, list[int]]


@pytest.fixture
def bootstrap(penstock_session_broker: BrokerProcess) -> str:
    return penstock_session_broker.bootstrap


@pytest.fixture
def name() -> str:
    return f"positions-{uuid4().hex[:8]}"


def reader(bootstrap: str, **options: str) -> StreamReader:
    given = {"bootstrap": bootstrap, "startingOffsets": "earliest", **options}
    kind = TableStreamReader if "archive" in options else StreamReader
    return kind(parse(given))


def read(source: StreamReader, start: Position, end: Position) -> Read:
    """Numbers of the records of one batch, by topic."""
    found: Read = {}
    for part in source.partitions(start, end):
        for rows in source.read(part):
            for row in rows.to_pylist():
                found.setdefault(row["topic"], []).append(int(row["value"].removeprefix(b"value ")))
    return {topic: sorted(numbers) for topic, numbers in found.items()}


def batch(source: StreamReader, start: Position, limit: ReadLimit | None = None) -> tuple[Position, Read]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        end = source.latestOffset(start, limit or ReadAllAvailable())
        return end, read(source, start, end)


@pytest.mark.parametrize("comes_as", ["topic", "partition"])
def test_limit_holds_for_topics_and_partitions_new_to_a_query(
    bootstrap: str, name: str, comes_as: str
) -> None:
    make(bootstrap, f"{name}-a", 1)
    produce(bootstrap, f"{name}-a", range(10), 1)
    source = reader(bootstrap, subscribePattern=f"{name}-.*")
    position, _ = batch(source, source.initialOffset())
    if comes_as == "topic":
        make(bootstrap, f"{name}-b", 1)
        produce(bootstrap, f"{name}-b", range(10, 510), 1)
    else:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_partitions([NewPartitions(f"{name}-a", 2)])[f"{name}-a"].result(30)
        produce(bootstrap, f"{name}-a", range(11, 1011, 2), 2)
    total = 0
    for _ in range(5):
        position, found = batch(source, position, ReadMaxRows(100))
        count = sum(map(len, found.values()))
        assert count == 100
        total += count
    assert total == 500
    assert batch(source, position)[0] == position


def test_topic_subscribed_again_continues_from_its_position(bootstrap: str, name: str) -> None:
    a, b = f"{name}-a", f"{name}-b"
    for topic in (a, b):
        make(bootstrap, topic)
        produce(bootstrap, topic, range(20))
    both, one = reader(bootstrap, subscribe=f"{a},{b}"), reader(bootstrap, subscribe=a)
    position, found = batch(both, both.initialOffset())
    assert found == {a: list(range(20)), b: list(range(20))}
    for topic in (a, b):
        produce(bootstrap, topic, range(20, 30))
    position, found = batch(one, position)
    assert found == {a: list(range(20, 30))}
    position, found = batch(both, position)
    assert found == {b: list(range(20, 30))}
    assert batch(both, position) == (position, {})


def test_partition_assigned_again_continues_from_its_position(bootstrap: str, name: str) -> None:
    make(bootstrap, name)
    produce(bootstrap, name, range(20))
    both = reader(bootstrap, assign=f'{{"{name}": [0, 1]}}')
    one = reader(bootstrap, assign=f'{{"{name}": [0]}}')
    position, _ = batch(both, both.initialOffset())
    position, found = batch(one, position)
    assert found == {}
    produce(bootstrap, name, range(20, 30))
    assert batch(both, position)[1] == {name: list(range(20, 30))}


@pytest.mark.parametrize("kind", ["subscribe", "subscribePattern", "assign"])
def test_deleted_topic_is_a_named_error_or_skipped(bootstrap: str, name: str, kind: str) -> None:
    a, b = f"{name}-a", f"{name}-b"
    for topic in (a, b):
        make(bootstrap, topic)
        produce(bootstrap, topic, range(20))
    value = {
        "subscribe": f"{a},{b}",
        "subscribePattern": f"{name}-.*",
        "assign": f'{{"{a}": [0, 1], "{b}": [0, 1]}}',
    }[kind]
    source = reader(bootstrap, **{kind: value})
    position, _ = batch(source, source.initialOffset())
    delete(bootstrap, b)
    produce(bootstrap, a, range(20, 30))
    with pytest.raises(OffsetsLost, match=f"topic {b} does not exist any more"):
        batch(source, position)
    tolerant = reader(bootstrap, failOnDataLoss="false", **{kind: value})
    with pytest.warns(UserWarning, match=f"topic {b} does not exist any more"):
        end = tolerant.latestOffset(position, ReadAllAvailable())
    assert read(tolerant, position, end) == {a: list(range(20, 30))}
    assert batch(tolerant, end) == (end, {})
    # The loss was accepted once: a query with failOnDataLoss=true continues from here.
    assert batch(source, end) == (end, {})
    make(bootstrap, b)
    produce(bootstrap, b, range(100, 110))
    assert batch(tolerant, end)[1] == {b: list(range(100, 110))}


def test_topic_deleted_between_plan_and_batch_is_skipped(bootstrap: str, name: str) -> None:
    a, b = f"{name}-a", f"{name}-b"
    for topic in (a, b):
        make(bootstrap, topic)
        produce(bootstrap, topic, range(20))
    source = reader(bootstrap, subscribe=f"{a},{b}", failOnDataLoss="false")
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    delete(bootstrap, b)
    with pytest.warns(UserWarning, match=f"{b}-[01] does not exist any more"):
        assert read(source, start, end) == {a: list(range(20))}
    with pytest.raises(OffsetsLost, match=f"{b}-[01] does not exist any more"):
        reader(bootstrap, subscribe=f"{a},{b}").partitions(start, end)


def test_topic_created_again_between_plan_and_batch_is_read_once(bootstrap: str, name: str) -> None:
    make(bootstrap, name)
    produce(bootstrap, name, range(20))
    source = reader(bootstrap, subscribe=name, failOnDataLoss="false")
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    delete(bootstrap, name)
    make(bootstrap, name)
    produce(bootstrap, name, range(100, 130))
    with pytest.warns(UserWarning, match="was deleted and created again|the topic was created again"):
        first = read(source, start, end)
    position, second = batch(source, end)
    assert (first, second) == ({}, {name: list(range(100, 130))})
    assert batch(source, position) == (position, {})


def test_topic_deletion_during_read_ends_only_the_task(bootstrap: str, name: str) -> None:
    make(bootstrap, name, 1)
    produce(bootstrap, name, range(20), 1)
    source = reader(bootstrap, subscribe=name, failOnDataLoss="false")
    start = source.initialOffset()
    [part] = source.partitions(start, source.latestOffset(start, ReadAllAvailable()))
    delete(bootstrap, name)
    with pytest.warns(UserWarning, match=f"of {name}-0 does not exist any more"):
        assert list(source.read(part)) == []


def test_topic_deleted_during_planning_causes_a_new_plan(
    bootstrap: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = f"{name}-a", f"{name}-b"
    for topic in (a, b):
        make(bootstrap, topic)
        produce(bootstrap, topic, range(20))
    source = reader(bootstrap, subscribe=f"{a},{b}", failOnDataLoss="false")
    start = source.initialOffset()
    find_offset: Callable[..., Any] = offsets.find_offset

    async def after_deletion(*arguments: Any) -> int:
        monkeypatch.setattr(offsets, "find_offset", find_offset)
        delete(bootstrap, b)
        found: int = await find_offset(*arguments)
        return found

    monkeypatch.setattr(offsets, "find_offset", after_deletion)
    assert batch(source, start)[1] == {a: list(range(20))}


def test_pattern_that_matches_nothing_reads_topics_made_later(bootstrap: str, name: str) -> None:
    source = reader(bootstrap, subscribePattern=f"{name}-.*", startingOffsets="latest")
    start = source.initialOffset()
    assert batch(source, start) == (start, {})
    make(bootstrap, f"{name}-a")
    produce(bootstrap, f"{name}-a", range(20))
    position, found = batch(source, start)
    assert found == {f"{name}-a": list(range(20))}
    assert batch(source, position) == (position, {})


def test_topic_that_never_existed_is_refused_by_name(bootstrap: str, name: str) -> None:
    make(bootstrap, name)
    source = reader(bootstrap, subscribe=name)
    position = source.initialOffset()
    for fails in ("true", "false"):
        wrong = reader(bootstrap, subscribe=f"{name},{name}-typo", failOnDataLoss=fails)
        with pytest.raises(OptionError, match=f"there is no topic '{name}-typo'"):
            wrong.initialOffset()
        with pytest.raises(OptionError, match=f"there is no topic '{name}-typo'"):
            wrong.latestOffset(position, ReadAllAvailable())


def test_available_now_ends_at_initial_end_if_a_topic_is_deleted(bootstrap: str, name: str) -> None:
    a, b = f"{name}-a", f"{name}-b"
    for topic in (a, b):
        make(bootstrap, topic)
        produce(bootstrap, topic, range(20))
    source = reader(bootstrap, subscribe=f"{a},{b}", failOnDataLoss="false")
    start = source.initialOffset()
    source.prepareForTriggerAvailableNow()
    delete(bootstrap, b)
    produce(bootstrap, a, range(20, 30))
    position, found = batch(source, start)
    assert found == {a: list(range(20))}
    assert batch(source, position) == (position, {})


def test_position_of_older_version_is_continued(bootstrap: str, name: str) -> None:
    make(bootstrap, name)
    produce(bootstrap, name, range(20))
    source = reader(bootstrap, subscribe=name)
    position = source.initialOffset()
    older = {"offsets": {name: {"0": 5, "1": 10}}, "topic_ids": position["topic_ids"]}
    assert batch(source, older)[1] == {name: list(range(10, 20, 2))}


def test_stream_over_an_archive_reads_a_deleted_topic_to_its_archived_end(
    bootstrap: str, name: str, tmp_path: Path
) -> None:
    for topic in (f"{name}-a", f"{name}-b"):
        make(bootstrap, topic)
        produce(bootstrap, topic, range(20))
    options = {"subscribe": f"{name}-a,{name}-b", "archive": str(tmp_path / "archive")}
    job = ArchiveJob(
        parse({"bootstrap": bootstrap, "subscribe": f"{name}-b"}), ArchiveTable.at(options["archive"])
    )
    list(Archiver(job, InProcess(), pytest.fail).run())
    source = reader(bootstrap, **options)
    start = source.initialOffset()
    delete(bootstrap, f"{name}-b")
    position, found = batch(source, start)
    assert found == {f"{name}-a": list(range(20)), f"{name}-b": list(range(20))}
    delete(bootstrap, f"{name}-a")
    with pytest.raises(PenstockError, match=f"topic {name}-a does not exist any more"):
        batch(source, position)
    tolerant = reader(bootstrap, failOnDataLoss="false", **options)
    assert batch(tolerant, position)[1] == {}
