"""Times since the last write to partitions, from looks at their log end offsets. Pure.

Every replica of a draining partition is looked at, and brokers tell each other, so that a new leader, and one that was
restarted, knows for how long the partition has been quiet. A broker also keeps the times in a file: time in which it
does not run does not count, because nobody can write then. After a change of leader a few seconds are left at least:
clients may be about to send again what the replaced leader has lost. Times are monotonic milliseconds of this process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from penstock.model import LeaderEpoch, Offset, TopicPartition

RETRY_MS = 5_000
"""Time that a new leader leaves to clients that send again."""


class QuietTime(NamedTuple):
    """Time for which the log of a partition has ended at an offset."""

    topic: str
    partition: int
    log_end: int
    quiet_ms: int


class QuietTimes:
    def __init__(self) -> None:
        self._seen: dict[TopicPartition, tuple[Offset, int]] = {}
        """Log end offset of each partition, and the time at which it was first seen."""
        self._epochs: dict[TopicPartition, tuple[LeaderEpoch, int]] = {}
        """Leader epoch of each partition, and the time at which it was first seen; 0 for the first one."""
        self._known: dict[TopicPartition, QuietTime] = {}
        """Times from before the start of this broker, of partitions that were not looked at yet."""

    def load(self, known: Iterable[QuietTime]) -> None:
        """Take the times that this broker knew before its restart."""
        self._known = {TopicPartition(each.topic, each.partition): each for each in known}

    def look(self, name: TopicPartition, log_end: Offset, epoch: LeaderEpoch, now_ms: int) -> None:
        """Note the log end offset and the leader epoch."""
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
        """Take longer times that another replica knows for the same log end offsets."""
        for each in told:
            name = TopicPartition(each.topic, each.partition)
            seen = self._seen.get(name)
            if seen is not None and seen[0] == each.log_end:
                self._seen[name] = (seen[0], min(seen[1], now_ms - max(0, each.quiet_ms)))

    def of(self, name: TopicPartition, wanted_ms: int, now_ms: int) -> int:
        """Time since the log end offset moved; less than `wanted_ms` shortly after a change of leader."""
        quiet_ms = now_ms - self._seen[name][1]
        _, led_since_ms = self._epochs[name]
        left_ms = min(RETRY_MS, wanted_ms) - (now_ms - led_since_ms) if led_since_ms else 0
        return min(quiet_ms, wanted_ms - left_ms) if left_ms > 0 else quiet_ms

    def all(self, now_ms: int) -> Iterator[QuietTime]:
        for name, (log_end, since_ms) in self._seen.items():
            yield QuietTime(name.topic, name.partition, log_end, now_ms - since_ms)

    def keep(self, names: Collection[TopicPartition]) -> None:
        """Forget all other partitions."""
        for name in self._seen.keys() - set(names):
            del self._seen[name]
            self._epochs.pop(name, None)
