"""Alarms for partitions with records whose dead letters cannot be written. Loop thread only."""

from __future__ import annotations

from penstock.model import TopicPartition
from penstock.observability.alarms import AlarmKind
from penstock.queues.share_leader import ShareLeader
from penstock.server.context import BrokerContext

_KIND = AlarmKind.BLOCKED_DEAD_LETTERS


class LetterAlarms:
    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._raised: set[TopicPartition] = set()

    def run(self) -> None:
        """Raise and clear alarms by the current state. One alarm names all affected groups of a partition."""
        alarms = self._context.alarms
        found: dict[TopicPartition, list[str]] = {}
        for leader in self._context.share.partitions.all:
            if leader.letters.problem and leader.partition is not None:
                found.setdefault(leader.replica.name, []).append(_detail(leader))
        for partition, details in found.items():
            detail = "; ".join(sorted(details))
            if not alarms.is_set(_KIND, partition, detail):
                alarms.set(_KIND, partition, detail)
        for partition in self._raised - found.keys():
            alarms.clear(_KIND, partition)
        self._raised = set(found)


def _detail(leader: ShareLeader) -> str:
    partition = leader.partition
    assert partition is not None
    count, limit = partition.archiving, partition.settings.max_archiving
    waiting = (
        f"{count} records wait" if count < limit else f"{count} records wait, and no others are delivered"
    )
    return f"group {leader.key.group_id}: {waiting}: {leader.letters.problem}"
