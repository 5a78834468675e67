"""Plan of a read: converts options to the offset range of each partition, and handles offsets that do not exist."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from penstock.pipeline.fetching import OffsetsLost
from penstock.pipeline.offsets import SourceTopic, TopicPartition, offsets_at
from penstock.pipeline.options import EARLIEST, LATEST, Bound, OptionError, SourceOptions
from penstock.pipeline.ranges import OffsetRange
from penstock.pipeline.read_settings import ReadSettings

Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """Options and topics of one read, in the driver."""

    options: SourceOptions
    topics: Mapping[str, SourceTopic]

    @property
    def read_settings(self) -> ReadSettings:
        return ReadSettings(self.options.bootstrap, self.options.read_committed)

    @property
    def partitions(self) -> list[TopicPartition]:
        return [(topic.name, number) for topic in self.topics.values() for number in topic.partitions]

    def resolve(self, bound: Bound, *, is_end: bool = False) -> dict[TopicPartition, int]:
        """Offset of each partition for a bound."""
        times: dict[TopicPartition, int] = {}
        resolved: dict[TopicPartition, int] = {}
        for name, number in self.partitions:
            offset = self._given(bound.offsets, name, number)
            if bound.offsets is not None and offset is None:
                raise OptionError(f"no offset is given for {name}-{number}: give one for every partition")
            time_ms = bound.time_ms if bound.times is None else self._given(bound.times, name, number)
            if offset is not None and offset >= 0:
                resolved[name, number] = offset
            else:
                times[name, number] = (
                    offset if offset is not None else bound.at if time_ms is None else time_ms
                )
        found = self.find(times)
        late = [partition for partition, offset in found.items() if offset < 0]
        if late and not (is_end or self.options.latest_where_time_has_none):
            raise OptionError(
                f"{late[0][0]}-{late[0][1]} has no record at or after the time given; "
                "set startingOffsetsByTimestampStrategy=latest to start at its end"
            )
        found |= self.find(dict.fromkeys(late, LATEST))
        return resolved | found

    def find(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """First offset at or after each timestamp, or the end of the log that EARLIEST or LATEST stands for; -1 if all
        records are older.
        """
        return offsets_at(self.read_settings, times)

    def _given(self, given: Mapping[str, Mapping[int, int]] | None, name: str, number: int) -> int | None:
        return None if given is None else given.get(name, {}).get(number)

    def ranges(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], warn: Warn
    ) -> list[OffsetRange]:
        """The parts of the ranges from `starts` to `ends` that exist. Missing offsets raise OffsetsLost, or are left
        out with a warning (failOnDataLoss=false).
        """
        earliest = self.find(dict.fromkeys(ends, EARLIEST))
        latest = self.find(dict.fromkeys(ends, LATEST))
        found = []
        for partition, end in ends.items():
            start = starts.get(partition, earliest[partition])
            if start < earliest[partition] and end > start:
                self.report_loss(f"{_name(partition)} starts at {earliest[partition]}, not at {start}", warn)
                start = earliest[partition]
            if end > latest[partition]:
                self.report_loss(f"{_name(partition)} ends at {latest[partition]}, not at {end}", warn)
                end = latest[partition]
            topic, number = partition
            found.append(OffsetRange(topic, self.topics[topic].id, number, start, max(start, end)))
        return found

    def report_loss(self, what: str, warn: Warn) -> None:
        if self.options.fails_on_data_loss:
            raise OffsetsLost(f"{what}; set failOnDataLoss=false to read the offsets that exist")
        warn(what)


def limited(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """End offsets for a read of at most `most` offsets from `starts` on, divided in proportion to the remaining
    offsets.

    Every partition in `ends` needs a start. Offsets that rounding leaves over go first to partitions without a share.
    """
    lengths = {partition: max(0, end - starts[partition]) for partition, end in ends.items()}
    total = sum(lengths.values())
    if total <= most:
        return dict(ends)
    shares = {partition: length * most // total for partition, length in lengths.items()}
    rest = most - sum(shares.values())
    for partition in _by_need(lengths, shares):
        if rest <= 0:
            break
        shares[partition] += 1
        rest -= 1
    return {partition: starts[partition] + shares[partition] for partition in ends}


def _by_need(
    lengths: Mapping[TopicPartition, int], shares: Mapping[TopicPartition, int]
) -> Iterable[TopicPartition]:
    """Partitions without a share first, then by remaining offsets, most first."""
    waiting = [partition for partition, length in lengths.items() if length > shares[partition]]
    return sorted(
        waiting, key=lambda partition: (shares[partition] > 0, shares[partition] - lengths[partition])
    )


def _name(partition: TopicPartition) -> str:
    return f"{partition[0]}-{partition[1]}"
