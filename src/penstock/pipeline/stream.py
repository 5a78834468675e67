"""A topic as a stream: Spark remembers how far it has read, by topic, topic id and partition, in its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.pipeline.offsets import Partition, ends_of, topics_of
from penstock.pipeline.options import LATEST, Bound, OptionError, SourceOptions
from penstock.pipeline.planning import Plan, limited
from penstock.pipeline.ranges import OffsetRange, split
from penstock.pipeline.source import RangePartition, read_rows, warn


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        if options.end is not None:
            raise OptionError("a stream has no end: leave the options out that end it")
        self.options = options
        self._target: dict[Partition, int] | None = None
        """Of a query that reads what is there and stops."""

    def initialOffset(self) -> dict[str, Any]:
        plan = self.plan()
        starts = plan.resolve(self.options.start or Bound(LATEST))
        return _encode(plan, starts)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        plan = self.plan()
        ends = self._target or ends_of(plan.reading, plan.partitions, LATEST)
        starts = self._starts(plan, start)
        ends = {partition: max(end, starts.get(partition, 0)) for partition, end in ends.items()}
        if isinstance(limit, ReadMaxRows):
            ends = limited(starts, ends, limit.max_rows)
        return _encode(plan, ends)

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> dict[str, Any]:
        plan = self.plan()
        return _encode(plan, ends_of(plan.reading, plan.partitions, LATEST))

    def prepareForTriggerAvailableNow(self) -> None:
        plan = self.plan()
        self._target = ends_of(plan.reading, plan.partitions, LATEST)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        plan = self.plan()
        ends = {each: offset for each, offset in _decode(end).items() if each[0] in plan.topics}
        for topic in {topic for topic, _ in _decode(end)} - plan.topics.keys():
            plan.lose(f"topic {topic} is not there any more", warn)
        return self.pieces(plan, plan.ranges(self._starts(plan, start), ends, warn))

    def pieces(self, plan: Plan, ranges: list[OffsetRange]) -> Sequence[InputPartition]:
        """What the tasks of a batch read."""
        return [RangePartition(each) for each in split(ranges, self.options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return read_rows(self.options, partition.range)

    def plan(self) -> Plan:
        return Plan(self.options, topics_of(self.options))

    def _starts(self, plan: Plan, start: dict[str, Any]) -> dict[Partition, int]:
        """Partitions that came later start at their beginning; a topic that was made again is read anew."""
        known = start.get("topic_ids", {})
        starts = {}
        for (name, number), offset in _decode(start).items():
            topic = plan.topics.get(name)
            if topic is None or number not in topic.partitions:
                continue
            if known.get(name, topic.id) != topic.id:
                plan.lose(f"topic {name} was deleted and made again", warn)
                continue
            starts[name, number] = offset
        return starts


def _encode(plan: Plan, offsets: Mapping[Partition, int]) -> dict[str, Any]:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[str(number)] = offset
    return {"offsets": by_topic, "topic_ids": {name: plan.topics[name].id for name in by_topic}}


def _decode(position: Mapping[str, Any]) -> dict[Partition, int]:
    return {
        (topic, int(number)): offset
        for topic, partitions in position["offsets"].items()
        for number, offset in partitions.items()
    }
