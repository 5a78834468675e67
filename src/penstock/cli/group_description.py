"""Consumer groups as the command line shows them: members, committed offsets, and how far behind they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass

import typer
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import ConsumerGroupDescription, MemberDescription

from penstock.cli.admin_client import NO_GROUP
from penstock.cli.cluster import REQUEST_SECONDS, Cluster, answer
from penstock.cli.failures import Failure
from penstock.cli.output import NONE, print_table
from penstock.internal_client.records import EARLIEST, LATEST

Offsets = dict[tuple[str, int], int]
"""Offsets by topic and partition."""

# The states of the new protocol that the client library has no name for are both on the way to `stable`.
_STATES = {
    ConsumerGroupState.UNKNOWN: "reconciling",
    ConsumerGroupState.PREPARING_REBALANCING: "preparing rebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "completing rebalance",
}


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[tuple[str, int], ...]

    @property
    def shown(self) -> str:
        return self.instance_id or self.member_id


@dataclass(frozen=True, slots=True)
class GroupPartition:
    topic: str
    partition: int
    committed_offset: int | None
    start_offset: int | None
    end_offset: int | None
    """The log start and end; None where the partition does not exist any more."""
    owner: str | None

    @property
    def lag(self) -> int | None:
        """Offsets between the committed offset and the log end, or in the whole log without a committed offset."""
        if self.start_offset is None or self.end_offset is None:
            return None
        reached = self.start_offset if self.committed_offset is None else self.committed_offset
        return max(0, self.end_offset - reached)


@dataclass(frozen=True, slots=True)
class Group:
    group: str
    type: str
    state: str
    assignor: str
    members: tuple[Member, ...]
    partitions: tuple[GroupPartition, ...]

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


def group_ids(cluster: Cluster) -> list[str]:
    listed = answer(cluster.admin.list_consumer_groups(request_timeout=REQUEST_SECONDS), "the groups")
    if listed.errors:
        raise Failure(f"the groups: {listed.errors[0]}")
    return sorted(each.group_id for each in listed.valid)


def is_group_of_others(cluster: Cluster, group: str) -> bool:
    """Whether there is such a group, and it is not one of consumers."""
    asked = cluster.admin.describe_consumer_groups([group], request_timeout=REQUEST_SECONDS)
    return bool(_error_code(asked[group]) == KafkaError._INVALID_ARG)


def describe_groups(cluster: Cluster, groups: Sequence[str]) -> list[Group]:
    """Those of them that exist."""
    if not groups:
        return []
    asked = cluster.admin.describe_consumer_groups(list(groups), request_timeout=REQUEST_SECONDS)
    described = [found for group, future in asked.items() if (found := _existing(future, group)) is not None]
    offsets = committed_offsets(cluster, [found.group_id for found in described])
    existing = {name: range(len(topic.partitions)) for name, topic in cluster.topics().items()}
    places = {found.group_id: _places(found, offsets[found.group_id], existing) for found in described}
    wanted = sorted(
        (topic, number)
        for topic, number in set().union(*places.values())
        if number in existing.get(topic, ())
    )
    starts = cluster.offsets_of(wanted, EARLIEST)
    ends = cluster.offsets_of(wanted, LATEST)
    return [
        _group(found, offsets[found.group_id], places[found.group_id], starts, ends) for found in described
    ]


def describe_group(cluster: Cluster, group: str) -> Group:
    found = describe_groups(cluster, [group])
    if not found:
        raise Failure(f"there is no group {group!r}", NO_GROUP)
    return found[0]


def committed_offsets(cluster: Cluster, groups: Iterable[str]) -> dict[str, Offsets]:
    # The library asks for one group at a time; the questions are all under way together.
    asked = {
        group: cluster.admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=REQUEST_SECONDS
        )[group]
        for group in groups
    }
    return {
        group: {
            (place.topic, place.partition): place.offset
            for place in answer(future, group).topic_partitions
            if place.offset >= 0
        }
        for group, future in asked.items()
    }


def print_group(group: Group) -> None:
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


def _row(partition: GroupPartition) -> tuple[object, ...]:
    numbers = (partition.committed_offset, partition.end_offset, partition.lag)
    shown = (NONE if number is None else number for number in numbers)
    return partition.topic, partition.partition, *shown, partition.owner or NONE


def _existing(future: Future[ConsumerGroupDescription], group: str) -> ConsumerGroupDescription | None:
    code = _error_code(future)
    if code == KafkaError.GROUP_ID_NOT_FOUND:
        return None
    if code == KafkaError._INVALID_ARG:
        raise Failure(f"{group!r} is not a group of consumers", "Kafka Connect and others use groups too.")
    found = answer(future, group)
    return None if found.state == ConsumerGroupState.DEAD else found


def _error_code(future: Future[ConsumerGroupDescription]) -> int | None:
    error = future.exception(REQUEST_SECONDS)
    return error.args[0].code() if isinstance(error, KafkaException) else None


def _group(
    found: ConsumerGroupDescription,
    offsets: Offsets,
    places: Iterable[tuple[str, int]],
    starts: Offsets,
    ends: Offsets,
) -> Group:
    members = tuple(sorted((_member(each) for each in found.members), key=lambda each: each.shown))
    owners = {place: member.shown for member in members for place in member.partitions}
    partitions = tuple(
        GroupPartition(*place, offsets.get(place), starts.get(place), ends.get(place), owners.get(place))
        for place in sorted(places)
    )
    state = _STATES.get(found.state, found.state.name.lower())
    return Group(
        found.group_id, found.type.name.lower(), state, found.partition_assignor, members, partitions
    )


def _member(member: MemberDescription) -> Member:
    places = tuple((place.topic, place.partition) for place in member.assignment.topic_partitions)
    return Member(member.member_id, member.group_instance_id, member.client_id, member.host, places)


def _places(
    found: ConsumerGroupDescription, offsets: Offsets, existing: Mapping[str, Iterable[int]]
) -> set[tuple[str, int]]:
    """Every partition of the topics that the group reads: a member owns one of its partitions, or one has a commit."""
    owned = {place for member in found.members for place in _member(member).partitions}
    known = owned | offsets.keys()
    return known | {(topic, number) for topic, _ in known for number in existing.get(topic, ())}
