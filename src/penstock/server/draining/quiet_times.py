"""Time since the last write to each draining partition, from repeated observations of its log end offset. Pure.

Brokers observe every replica of a draining partition and exchange their times, so that a new or restarted leader knows
for how long the partition has been quiet. A broker also keeps the times in a file; the time while it is down does not
count. After a change of leader the remaining quiet time is a few seconds at least, because clients may be about to send
again records that the former leader has lost. Times are monotonic milliseconds of this process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from penstock.model import LeaderEpoch, Offset, TopicPartition

RETRY_MS = 5_000
"""Time in milliseconds that a new leader grants to clients that send records again."""


class QuietTime(NamedTuple):
    """Time in milliseconds for which the log of a partition has ended at the offset `log_end`."""

    topic: str
    partition: int
    log_end: int
    quiet_ms: int


class QuietTimes:
    def __init__(self) -> None:
        self._seen: dict[TopicPartition, tuple[Offset, int]] = {}
        """Log end offset of each partition, and the time at which it was first seen."""
        self._epochs: dict[TopicPartition, tuple[LeaderEpoch, int]] = {}
        """Leader epoch of each partition, and the time at which it was first seen; 0 for the first observed epoch."""
        self._known: dict[TopicPartition, QuietTime] = {}
        """Times from before the restart of this broker, for partitions that were not observed since."""

    def load(self, known: Iterable[QuietTime]) -> None:
        """Set the times that this broker stored before its restart."""
        self._known = {TopicPartition(each.topic, each.partition): each for each in known}

    def look(self, name: TopicPartition, log_end: Offset, epoch: LeaderEpoch, now_ms: int) -> None:
        """Record the current log end offset and leader epoch of a partition."""
        seen = self._seen.get(name)
        if seen is None or seen[0] != log_end:
            self._seen[name] = (log_end, now_ms)
            known = self._known.pop(name, None)
            if known is not None:
                self.learn([known], now_ms)
        led = self._epochs.get(name)
        if led is None or led[0] != epoch:
            self._epochs[name] = (epoch, 0 if led is None else now_ms)

    def learn(self, told: Iterable[QuietTime], now_ms: int) -> None:
        """Adopt longer times that another broker has observed for the same log end offsets."""
        for each in told:
            name = TopicPartition(each.topic, each.partition)
            seen = self._seen.get(name)
            if seen is not None and seen[0] == each.log_end:
                self._seen[name] = (seen[0], min(seen[1], now_ms - max(0, each.quiet_ms)))

    def of(self, name: TopicPartition, wanted_ms: int, now_ms: int) -> int:
        """Time in milliseconds since the log end offset last moved; it stays below `wanted_ms` shortly after a change
        of leader.
        """
        quiet_ms = now_ms - self._seen[name][1]
        _, led_since_ms = self._epochs[name]
        left_ms = min(RETRY_MS, wanted_ms) - (now_ms - led_since_ms) if led_since_ms else 0
        return min(quiet_ms, wanted_ms - left_ms) if left_ms > 0 else quiet_ms

    def all(self, now_ms: int) -> Iterator[QuietTime]:
        for name, (log_end, since_ms) in self._seen.items():
            yield QuietTime(name.topic, name.partition, log_end, now_ms - since_ms)

    def keep(self, names: Collection[TopicPartition]) -> None:
        """Forget partitions that are not in `names`."""
        for name in self._seen.keys() - set(names):
            del self._seen[name]
            self._epochs.pop(name, None)
