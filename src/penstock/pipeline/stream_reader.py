"""Streaming source: Spark requests the next position, plans a batch between two positions, and stores
positions in the checkpoint (see `positions`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.clock import SystemClock
from penstock.pipeline.offsets import NoSuchTopic, TopicPartition, topics_of
from penstock.pipeline.options import EARLIEST, LATEST, Bound, OptionError, SourceOptions, SubscriptionKind
from penstock.pipeline.planning import Plan, limited
from penstock.pipeline.positions import Position
from penstock.pipeline.range_reading import read_rows, warn
from penstock.pipeline.ranges import OffsetRange
from penstock.pipeline.source import RangePartition
from penstock.pipeline.typed.typed_rows import typed_rows

T = TypeVar("T")

_ATTEMPTS = 5
"""Number of plans that may become invalid, because topics are deleted, before the error is raised."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        if options.end is not None:
            raise OptionError(
                "a stream has no end: remove endingOffsets, endingTimestamp and endingOffsetsByTimestamp"
            )
        self.options = options
        self._batch_at: float | None = None
        """Monotonic time of the last batch, in seconds."""
        self._target: Position | None = None
        """End position of a query with the trigger availableNow; None with other triggers."""

    def initialOffset(self) -> dict[str, Any]:
        plan = self.plan()
        starts = plan.resolve(self.options.start or Bound(LATEST))
        return _position(plan, starts).encode()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before = Position.decode(start)

        def find(plan: Plan) -> dict[str, Any]:
            deleted = self._deleted(plan, before)
            starts = self._starts(plan, before)
            ends = self._ends(plan)
            new = [partition for partition in ends if partition not in starts]
            starts |= plan.find(dict.fromkeys(new, EARLIEST))
            ends = {partition: max(end, starts[partition]) for partition, end in ends.items()}
            if self._waits_for_more(sum(end - starts[partition] for partition, end in ends.items())):
                return start
            if isinstance(limit, ReadMaxRows):
                ends = limited(starts, ends, limit.max_rows)
            return before.advanced(ends, _ids(plan), deleted).encode()

        return self._planned(before.topic_ids, find)

    def _waits_for_more(self, offsets: int) -> bool:
        """Return True if there are fewer offsets than `minOffsetsPerTrigger` and the last batch was less than
        `maxTriggerDelay` ago.
        """
        least, now = self.options.min_offsets_per_trigger, SystemClock().monotonic()
        if least is None or self._target is not None or offsets == 0:
            return False
        if self._batch_at is None:
            self._batch_at = now
        if offsets < least and (now - self._batch_at) * 1000 < self.options.max_trigger_delay_ms:
            return True
        self._batch_at = now
        return False

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> dict[str, Any]:
        return self._latest().encode()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        before, after = Position.decode(start), Position.decode(end)

        def cut(plan: Plan) -> Sequence[InputPartition]:
            there, ids = set(plan.partitions), _ids(plan)
            ends = {}
            for (name, number), offset in after.offsets.items():
                if (name, number) in there and after.topic_ids.get(name, ids[name]) == ids[name]:
                    ends[name, number] = offset
                elif offset > before.offsets.get((name, number), 0):
                    plan.report_loss(
                        f"{name}-{number} does not exist any more, or the topic was created again", warn
                    )
            return self.pieces(plan, plan.ranges(self._starts(plan, before), ends, warn))

        return self._planned(after.topic_ids, cut)

    def pieces(self, plan: Plan, ranges: list[OffsetRange]) -> Sequence[InputPartition]:
        """Partitions for the tasks of a batch."""
        return [RangePartition(each) for each in self.options.split(ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return typed_rows(self.options, read_rows(self.options, partition.range))

    def plan(self, read_before: Mapping[str, str] | None = None) -> Plan:
        """Plan for the topics of the subscription. Raises NoSuchTopic if a topic does not exist. With `read_before`,
        the ids of topics that the stream has read, such a topic is left out instead.
        """
        return Plan(self.options, topics_of(self.options, skips_missing=read_before is not None))

    def _planned(self, read_before: Mapping[str, str], work: Callable[[Plan], T]) -> T:
        """Run `work` on a plan. Repeat it on a new plan if a topic was deleted in between."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return work(self.plan(read_before))
            except NoSuchTopic:
                continue
        return work(self.plan(read_before))

    def _latest(self) -> Position:
        def find(plan: Plan) -> Position:
            return _position(plan, plan.find(dict.fromkeys(plan.partitions, LATEST)))

        return self._planned({}, find)

    def _ends(self, plan: Plan) -> dict[TopicPartition, int]:
        if self._target is None:
            return plan.find(dict.fromkeys(plan.partitions, LATEST))
        ids = self._target.topic_ids
        return {
            partition: self._target.offsets[partition]
            for partition in plan.partitions
            if partition in self._target.offsets and ids[partition[0]] == plan.topics[partition[0]].id
        }

    def _deleted(self, plan: Plan, before: Position) -> frozenset[str]:
        """Deleted topics of the subscription. The first time that a topic is found to be deleted counts as data
        loss.
        """
        if self.options.subscription is SubscriptionKind.PATTERN:
            pattern = re.compile(self.options.topics[0])
            subscribed = [name for name in before.topic_ids if pattern.fullmatch(name)]
        else:
            subscribed = list(self.options.topics)
        missing = [name for name in subscribed if name not in plan.topics]
        for name in missing:
            if name not in before.topic_ids:
                raise OptionError(f"there is no topic {name!r}")
            if name not in before.deleted:
                plan.report_loss(f"topic {name} does not exist any more", warn)
        return frozenset(missing)

    def _starts(self, plan: Plan, before: Position) -> dict[TopicPartition, int]:
        """Start offsets of partitions in the plan. A partition without a start is new, or its topic was
        deleted and created again: it is read from its log start offset.
        """
        replaced = set()
        for name, topic in plan.topics.items():
            if before.topic_ids.get(name, topic.id) != topic.id:
                plan.report_loss(f"topic {name} was deleted and created again", warn)
                replaced.add(name)
        return {
            partition: before.offsets[partition]
            for partition in plan.partitions
            if partition in before.offsets and partition[0] not in replaced
        }


def _position(plan: Plan, offsets: Mapping[TopicPartition, int]) -> Position:
    return Position(offsets, _ids(plan))


def _ids(plan: Plan) -> dict[str, str]:
    return {name: topic.id for name, topic in plan.topics.items()}
