"""Times since the last write to partitions, from looks at their log end offsets. Pure.

Every replica of a draining partition is looked at, so that a follower that becomes the leader knows for how long the
partition has been quiet. Times are monotonic milliseconds of this process: after a restart, the quiet time of a
partition that this broker leads begins anew.
"""

from __future__ import annotations

from collections.abc import Collection

from penstock.model import Offset, TopicPartition


class QuietTimes:
    def __init__(self) -> None:
        self._seen: dict[TopicPartition, tuple[Offset, int]] = {}
        """Log end offset of each partition, and the time at which it was first seen."""

    def look(self, name: TopicPartition, log_end: Offset, now_ms: int) -> int:
        """Note the log end offset, and return the time since it moved."""
        seen = self._seen.get(name)
        if seen is None or seen[0] != log_end:
            self._seen[name] = (log_end, now_ms)
            return 0
        return now_ms - seen[1]

    def keep(self, names: Collection[TopicPartition]) -> None:
        """Forget all other partitions."""
        for name in self._seen.keys() - set(names):
            del self._seen[name]
