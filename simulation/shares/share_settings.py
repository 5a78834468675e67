"""Settings of brokers for simulated share groups: short locks, few locks, and snapshots after a few updates."""

from __future__ import annotations

from random import Random


def share_settings(random: Random) -> dict[str, str]:
    return {
        "share.coordinator.state.topic.num.partitions": "2",
        "share.coordinator.snapshot.update.records.per.snapshot": str(random.choice((2, 10, 500))),
        "share.coordinator.state.topic.prune.interval.ms": str(random.choice((500, 300_000))),
        "group.share.min.record.lock.duration.ms": "1",
        "group.share.min.partition.max.record.locks": "1",
        "group.share.max.delivery.count.limit": "100",
    }
