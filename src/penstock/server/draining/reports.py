"""Report of a broker to another broker about shrinking topics: clients, quiet times and positions of groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from penstock.internal_client.slices import in_slices
from penstock.model import TopicId, TopicPartition
from penstock.server.context import BrokerContext
from penstock.server.draining.group_positions import GroupPositions, collect
from penstock.server.draining.known_clients import Acquaintances, ClientIdentity
from penstock.server.draining.next_phase import GroupPosition
from penstock.server.draining.quiet_times import QuietTime


class DrainReport(NamedTuple):
    known: Acquaintances
    positions: GroupPositions
    quiet: list[QuietTime]


async def make_report(
    context: BrokerContext, known: Acquaintances, quiet: Sequence[QuietTime], *, with_groups: bool
) -> dict[str, Any]:
    """Make a report as values for JSON."""
    positions = GroupPositions()
    if with_groups:
        await in_slices(collect(context, positions))
    return {
        "before": [[topic_id.hex, list(clients)] for topic_id, clients in known.before.items()],
        "consumers": list(known.consumers),
        "producers": list(known.producers),
        "incomplete": [topic_id.hex for topic_id in known.incomplete],
        "groups": [[name.topic, name.partition, list(found)] for name, found in positions.found.items()],
        "shards": positions.shards,
        "quiet": [list(each) for each in quiet],
    }


def read_report(report: Any) -> DrainReport:
    """Read a report of another broker. Raises ValueError, TypeError or KeyError if it is malformed."""
    known = Acquaintances(
        {
            TopicId(UUID(hex=topic)): {ClientIdentity(*each) for each in seen}
            for topic, seen in report["before"]
        },
        {ClientIdentity(*each) for each in report["consumers"]},
        {ClientIdentity(*each) for each in report["producers"]},
        {TopicId(UUID(hex=topic)) for topic in report["incomplete"]},
    )
    positions = GroupPositions(
        {
            TopicPartition(topic, index): [GroupPosition(*each) for each in found]
            for topic, index, found in report["groups"]
        },
        {topic: dict(epochs) for topic, epochs in report["shards"].items()},
    )
    quiet = [QuietTime(str(topic), *map(int, rest)) for topic, *rest in report.get("quiet", ())]
    return DrainReport(known, positions, quiet)
