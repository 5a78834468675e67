"""Description of consumer groups for the command line: members, committed offsets and lag."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import typer

from penstock.cli.admin_client import NO_GROUP
from penstock.cli.cluster_client import ClusterClient
from penstock.cli.failures import Failure
from penstock.cli.output import NONE, print_table
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.client import InternalClient
from penstock.internal_client.groups import CONSUMER, GroupDetails, GroupMemberSummary
from penstock.internal_client.records import EARLIEST, LATEST

Offsets = dict[tuple[str, int], int]
"""Offsets by topic and partition."""

_STATES = {
    "Assigning": "reconciling",
    "PreparingRebalance": "preparing rebalance",
    "CompletingRebalance": "completing rebalance",
}
"""Group states that are shown with another name than Kafka's."""
_MAX_AT_ONCE = 100
_CONSUMERS = (CONSUMER, "")
"""Protocol types of consumer groups. The type is empty for groups that only commit offsets."""


@dataclass(frozen=True, slots=True)
class MemberReport:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[tuple[str, int], ...]

    @property
    def shown(self) -> str:
        return self.instance_id or self.member_id


@dataclass(frozen=True, slots=True)
class PartitionReport:
    topic: str
    partition: int
    committed_offset: int | None
    start_offset: int | None
    end_offset: int | None
    """Log end offset. This and the log start offset are None if the partition does not exist."""
    owner: str | None

    @property
    def lag(self) -> int | None:
        """Number of offsets from the committed offset to the log end; from the log start if there is no committed
        offset.
        """
        if self.start_offset is None or self.end_offset is None:
            return None
        reached = self.start_offset if self.committed_offset is None else self.committed_offset
        return max(0, self.end_offset - reached)


@dataclass(frozen=True, slots=True)
class GroupReport:
    group: str
    type: str
    state: str
    assignor: str
    members: tuple[MemberReport, ...]
    partitions: tuple[PartitionReport, ...]

    @property
    def lag(self) -> int:
        return sum(partition.lag or 0 for partition in self.partitions)

    @property
    def topics(self) -> list[str]:
        return sorted({partition.topic for partition in self.partitions})

    def as_json(self) -> dict[str, object]:
        return {
            "group": self.group,
            "type": self.type,
            "state": self.state,
            "assignor": self.assignor,
            "lag": self.lag,
            "members": [
                {"member_id": member.member_id, "instance_id": member.instance_id}
                | {"client_id": member.client_id, "host": member.host}
                for member in self.members
            ],
            "partitions": [asdict(partition) | {"lag": partition.lag} for partition in self.partitions],
        }


def group_ids(cluster: ClusterClient) -> list[str]:
    """Return the ids of all consumer groups, sorted."""
    listed = cluster.run(lambda client: client.groups.all(), "the groups")
    return [each.id for each in listed if each.protocol_type in _CONSUMERS]


def is_other_group(cluster: ClusterClient, group: str) -> bool:
    """Return True if a group exists and is not a consumer group."""
    [found] = cluster.run(lambda client: _describe_all(client, [group]), group)
    return found is not None and found.summary.protocol_type not in _CONSUMERS


def describe_groups(cluster: ClusterClient, groups: Sequence[str]) -> list[GroupReport]:
    """Describe the groups that exist. Raises Failure if one is not a consumer group."""
    if not groups:
        return []
    found = cluster.run(lambda client: _describe_all(client, groups), "the groups")
    described = [each for each in found if each is not None]
    for each in described:
        if each.summary.protocol_type not in _CONSUMERS:
            raise Failure(
                f"{each.summary.id!r} is not a consumer group: its protocol type is {each.summary.protocol_type!r}",
                "Use the tools of the application that owns the group, such as Kafka Connect.",
            )
    offsets = committed_offsets(cluster, [each.summary.id for each in described])
    existing = {name: range(len(topic.partitions)) for name, topic in cluster.topics().items()}
    places = {each.summary.id: _places(each, offsets[each.summary.id], existing) for each in described}
    wanted = sorted(
        (topic, number)
        for topic, number in set().union(*places.values())
        if number in existing.get(topic, ())
    )
    starts = cluster.offsets_of(wanted, EARLIEST)
    ends = cluster.offsets_of(wanted, LATEST)
    return [
        _group(each, offsets[each.summary.id], places[each.summary.id], starts, ends) for each in described
    ]


async def _describe_all(client: InternalClient, groups: Sequence[str]) -> list[GroupDetails | None]:
    gate = asyncio.Semaphore(_MAX_AT_ONCE)

    async def describe(group: str) -> GroupDetails | None:
        try:
            async with gate:
                return await client.groups.describe_members(group)
        except BrokerError as error:
            if error.code is ErrorCode.group_id_not_found:
                return None
            raise

    return await asyncio.gather(*map(describe, groups))


def describe_group(cluster: ClusterClient, group: str) -> GroupReport:
    found = describe_groups(cluster, [group])
    if not found:
        raise Failure(f"there is no group {group!r}", NO_GROUP)
    return found[0]


def committed_offsets(cluster: ClusterClient, groups: Sequence[str]) -> dict[str, Offsets]:
    """Return the committed offsets of each group."""

    async def fetch(client: InternalClient) -> dict[str, Offsets]:
        gate = asyncio.Semaphore(_MAX_AT_ONCE)

        async def fetch_one(group: str) -> Offsets:
            async with gate:
                found = await client.groups.all_committed(group)
            return {
                (topic, number): offset for topic, each in found.items() for number, offset in each.items()
            }

        return dict(zip(groups, await asyncio.gather(*map(fetch_one, groups)), strict=True))

    return cluster.run(fetch, "the committed offsets")


def print_group(group: GroupReport) -> None:
    assignor = f", assignor {group.assignor}" if group.assignor else ""
    typer.echo(f"{group.group}  {group.type}, {group.state}{assignor}, lag {group.lag:,}")
    if group.members:
        typer.echo()
        rows = [
            (each.member_id, each.instance_id or NONE, each.client_id, each.host, len(each.partitions))
            for each in group.members
        ]
        print_table(["member", "instance", "client", "host", "partitions"], rows)
    if group.partitions:
        typer.echo()
        columns = ["topic", "partition", "committed offset", "end offset", "lag", "owner"]
        print_table(columns, [_row(partition) for partition in group.partitions])


def _row(partition: PartitionReport) -> tuple[object, ...]:
    numbers = (partition.committed_offset, partition.end_offset, partition.lag)
    shown = (NONE if number is None else number for number in numbers)
    return partition.topic, partition.partition, *shown, partition.owner or NONE


def _group(
    found: GroupDetails,
    offsets: Offsets,
    places: Iterable[tuple[str, int]],
    starts: Offsets,
    ends: Offsets,
) -> GroupReport:
    members = tuple(sorted((_member(each) for each in found.members), key=lambda each: each.shown))
    owners = {place: member.shown for member in members for place in member.partitions}
    partitions = tuple(
        PartitionReport(*place, offsets.get(place), starts.get(place), ends.get(place), owners.get(place))
        for place in sorted(places)
    )
    summary = found.summary
    state = _STATES.get(summary.state, summary.state.lower())
    return GroupReport(summary.id, summary.type, state, found.assignor, members, partitions)


def _member(member: GroupMemberSummary) -> MemberReport:
    places = tuple((topic, number) for topic, numbers in member.partitions.items() for number in numbers)
    return MemberReport(member.id, member.instance_id, member.client_id, member.host, places)


def _places(
    found: GroupDetails, offsets: Offsets, existing: Mapping[str, Iterable[int]]
) -> set[tuple[str, int]]:
    """Return all partitions of the topics in which a partition is assigned or has a committed offset."""
    owned = {place for member in found.members for place in _member(member).partitions}
    known = owned | offsets.keys()
    return known | {(topic, number) for topic, _ in known for number in existing.get(topic, ())}
