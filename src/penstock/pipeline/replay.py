"""Replay of topics, from archive and log, into another topic. Each record is written once, also if the replay
is restarted.

Spark reads and filters the records, and each task writes the records of one source partition. The target cluster stores
the progress of each source partition in a consumer group, named after the replay.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.clock import SystemClock
from penstock.pipeline.archive.table_source import TablePlan
from penstock.pipeline.archive.topic_admin import topic_settings
from penstock.pipeline.offsets import topics_of
from penstock.pipeline.options import EARLIEST, LATEST, Bound, OptionError, SourceOptions, parse
from penstock.pipeline.planning import Plan, limited
from penstock.pipeline.range_reading import warn
from penstock.pipeline.ranges import OffsetRange
from penstock.pipeline.replay_writer import ReplayTarget, active_partitions, replayed_up_to, write_rows
from penstock.pipeline.table_store import store_at

OFFSETS_A_ROUND = 5_000_000
_KEPT_MARGIN_MS = 3_600_000
"""A record that retention would delete within this many milliseconds gets a new timestamp."""
_RETENTION, _BEFORE_MAX, _TYPE = "retention.ms", "message.timestamp.before.max.ms", "message.timestamp.type"


@dataclass(frozen=True, slots=True)
class ReplayJob:
    options: SourceOptions
    """Source: topics, archive, start and end."""
    target: str
    where: str | None = None
    rows_per_second: float | None = None
    name: str | None = None
    offsets_a_round: int = OFFSETS_A_ROUND


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    written: int
    offsets_left: int


def replay(job: ReplayJob, open_session: Callable[[], SparkSession]) -> Iterator[ReplayProgress]:
    """Replay in rounds. Yields the progress after each round."""
    if job.target in job.options.topics:
        raise OptionError(f"{job.target} cannot be replayed into itself")
    ranges = _ranges(job.options)
    target = _target(job, {each.topic: each.topic_id for each in ranges})
    ranges = _left(target, ranges)
    written = 0
    while ranges:
        round_ = _limited_to_round(ranges, job.offsets_a_round)
        written += _write(open_session(), job, target, round_)
        done = {(each.topic, each.partition): each.end for each in round_}
        moved = [replace(each, start=done.get((each.topic, each.partition), each.start)) for each in ranges]
        ranges = [each for each in moved if len(each)]
        yield ReplayProgress(written, sum(map(len, ranges)))
    if not written:
        yield ReplayProgress(0, 0)


def plan_of(options: SourceOptions) -> Plan:
    return TablePlan.make(options) if options.archive is not None else Plan(options, topics_of(options))


def _ranges(options: SourceOptions) -> list[OffsetRange]:
    plan = plan_of(options)
    starts = plan.resolve(options.start or Bound(EARLIEST))
    ends = plan.resolve(options.end or Bound(LATEST), is_end=True)
    return [each for each in plan.ranges(starts, ends, warn) if len(each)]


def _target(job: ReplayJob, topic_ids: Mapping[str, str]) -> ReplayTarget:
    options = job.options
    bootstrap = options.bootstrap
    [topic] = topics_of(parse({"bootstrap": bootstrap, "subscribe": job.target})).values()
    settings = topic_settings(bootstrap, [job.target], [_RETENTION, _BEFORE_MAX, _TYPE])[job.target]
    what = [sorted(topic_ids.items()), topic.id, job.where, repr(options.start), repr(options.end)]
    name = job.name or hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]
    partitions = active_partitions(bootstrap, job.target)
    return ReplayTarget(bootstrap, job.target, partitions, name, topic_ids, _oldest_ms(settings), None)


def _oldest_ms(settings: Mapping[str, str]) -> int | None:
    if settings.get(_TYPE) == "LogAppendTime":
        return None
    kept_ms = [int(settings[name]) for name in (_RETENTION, _BEFORE_MAX) if int(settings.get(name, -1)) >= 0]
    return SystemClock().now_ms() - min(kept_ms) + _KEPT_MARGIN_MS if kept_ms else 0


def _left(target: ReplayTarget, ranges: list[OffsetRange]) -> list[OffsetRange]:
    """The ranges without the offsets that an earlier run has written."""
    reached = {each: replayed_up_to(target, each.topic, each.partition) or 0 for each in ranges}
    return [
        replace(each, start=max(each.start, reached[each])) for each in ranges if reached[each] < each.end
    ]


def _limited_to_round(ranges: list[OffsetRange], most: int) -> list[OffsetRange]:
    starts = {(each.topic, each.partition): each.start for each in ranges}
    ends = limited(starts, {(each.topic, each.partition): each.end for each in ranges}, most)
    cut = [replace(each, end=ends[each.topic, each.partition]) for each in ranges]
    return [each for each in cut if len(each)]


def _write(spark: SparkSession, job: ReplayJob, target: ReplayTarget, ranges: list[OffsetRange]) -> int:
    frame = _rows(spark, job.options, ranges)
    if job.where is not None:
        frame = frame.where(job.where)
    if job.rows_per_second is not None:
        tasks = min(len(ranges), spark.sparkContext.defaultParallelism)
        target = replace(target, rows_per_second=job.rows_per_second / tasks)

    def write(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_rows(target, rows)

    return sum(row.written for row in frame.mapInArrow(write, "written long").collect())


def _rows(spark: SparkSession, options: SourceOptions, ranges: list[OffsetRange]) -> DataFrame:
    """Rows of the ranges in offset order, with one task for each range."""

    def by_topic(value_of: Callable[[OffsetRange], int]) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for each in ranges:
            found.setdefault(each.topic, {})[str(each.partition)] = value_of(each)
        return found

    starts, ends = by_topic(lambda each: each.start), by_topic(lambda each: each.end)
    reader = spark.read.format("penstock").options(
        bootstrap=options.bootstrap,
        assign=json.dumps({topic: [int(number) for number in numbers] for topic, numbers in starts.items()}),
        startingOffsets=json.dumps(starts),
        endingOffsets=json.dumps(ends),
        includeHeaders="true",
        inOrder="true",
    )
    if options.archive is not None:
        reader = reader.option("archive", store_at(options.archive).uri)
    return reader.load()
