"""Administration of consumer groups: `Admin().groups`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.client.cluster import Cluster, Place
from penstock.client.errors import GroupUnknown, InvalidSetting
from penstock.client.offset_lookup import END, START, Where
from penstock.client.partitions import named
from penstock.model import TopicPartition

DEAD = "DEAD"


@dataclass(frozen=True, slots=True)
class GroupListing:
    name: str
    state: str
    protocol: str
    """Group protocol: classic or consumer."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupPartition:
    topic: str
    partition: int
    committed: int | None
    end: int
    start: int
    """First offset of the partition."""

    @property
    def lag(self) -> int:
        """Number of offsets between the committed offset and the end; without a committed offset, between the start and
        the end.
        """
        return max(0, self.end - (self.start if self.committed is None else self.committed))


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    state: str
    protocol: str
    assignor: str
    members: tuple[GroupMember, ...]
    partitions: tuple[GroupPartition, ...]

    @property
    def lag(self) -> int:
        return sum(each.lag for each in self.partitions)


class Groups:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list(self) -> list[GroupListing]:
        (found,) = self._cluster.ask(
            {"": self._cluster.admin.list_consumer_groups()}, "cannot list the groups"
        )
        listings = (
            GroupListing(each.group_id, each.state.name.lower(), each.type.name.lower())
            for each in found.valid
        )
        return sorted(listings, key=lambda listing: listing.name)

    def describe(self, name: str) -> Group:
        """Return members, their partitions, and the lag of the group."""
        (found,) = self._cluster.ask(
            self._cluster.admin.describe_consumer_groups([name]), f"cannot describe {name}"
        )
        if found.state.name == DEAD:
            raise GroupUnknown(f"there is no group {name!r}; `penstock group list` shows the groups")
        members = tuple(
            GroupMember(
                each.member_id,
                each.group_instance_id or None,
                each.client_id,
                each.host,
                tuple(sorted(named(each.assignment.topic_partitions))),
            )
            for each in found.members
        )
        return Group(
            name,
            found.state.name.lower(),
            found.type.name.lower(),
            found.partition_assignor,
            members,
            self._partitions(name, members),
        )

    def reset(
        self, name: str, topic: str, to: Where, *, partitions: Iterable[int] | None = None
    ) -> dict[TopicPartition, int]:
        """Change the offsets of a group without members to another position in a topic; return the new
        offsets by partition.
        """
        targets = self._cluster.offsets(self._cluster.places(topic, partitions), to)
        if not targets:
            raise InvalidSetting("no partition was named")
        wanted = [KafkaPartition(*place, offset) for place, offset in targets.items()]
        answers = self._cluster.admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name, wanted)]
        )
        self._cluster.ask(answers, f"cannot reset {name}")
        return {TopicPartition(*place): offset for place, offset in targets.items()}

    def delete(self, name: str) -> None:
        """Delete a group without members, and its committed offsets."""
        self._cluster.ask(self._cluster.admin.delete_consumer_groups([name]), f"cannot delete {name}")

    def _partitions(self, name: str, members: tuple[GroupMember, ...]) -> tuple[GroupPartition, ...]:
        (found,) = self._cluster.ask(
            self._cluster.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)]),
            f"cannot look up the committed offsets of {name}",
        )
        committed: dict[Place, int | None] = {
            (each.topic, each.partition): None for member in members for each in member.partitions
        }
        committed |= {
            (each.topic, each.partition): each.offset for each in found.topic_partitions if each.offset >= 0
        }
        known = self._cluster.metadata().topics
        topics = {topic for topic, _ in committed if topic in known}
        places = sorted((topic, number) for topic in topics for number in known[topic].partitions)
        starts, ends = self._cluster.offsets(places, START), self._cluster.offsets(places, END)
        return tuple(
            GroupPartition(*place, committed.get(place), ends[place], starts[place]) for place in places
        )
