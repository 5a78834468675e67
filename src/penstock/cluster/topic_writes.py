"""Writes that create, extend or delete a topic, in several parts if it is large. Pure.

The topic's node holds the number of partitions; zero means that the topic does not exist. Partition nodes
beyond that number are invisible. A large change creates partition nodes before, or removes them after, the
one write of the topic's node that makes the change visible, in multis of a size that ZooKeeper accepts. Until
the change is complete, the topic's node has the highest number of partition nodes that may exist (`pending`)
and the broker that writes them (`writer`). Every part is conditional on the version of the topic's node, so a
broker that claims the topic stops the other writer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from penstock.cluster import znodes
from penstock.cluster.coordination import Check, Create, Delete, Operation, Set
from penstock.cluster.deletions import entry_of
from penstock.cluster.image import TopicImage
from penstock.cluster.loading import UnfinishedChange, encode_partition, encode_topic

MAX_PARTITIONS_PER_MULTI = 500

BYTES_PER_PARTITION = 1_000
"""Upper bound of the size of one partition in a multi, in bytes. Sizes of other data are given in multiples of it."""

MAX_NODE_BYTES = 400_000
"""Maximum size of a node in bytes. ZooKeeper accepts 1 MB in one request, and a request has other data
besides the node.
"""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Writes:
    """Writes of one change, in the order `announced`, `before`, `visible`, `after`. The change takes effect
    with `visible`; the writes in `after` clean up.
    """

    visible: tuple[Operation, ...] = ()
    announced: tuple[Operation, ...] = ()
    before: tuple[Sequence[Operation], ...] = ()
    after: tuple[Sequence[Operation], ...] = ()

    def __add__(self, other: Writes) -> Writes:
        return Writes(
            self.visible + other.visible,
            self.announced + other.announced,
            self.before + other.before,
            self.after + other.after,
        )


NOTHING = Writes()


def creation(topic: TopicImage, writer: str) -> tuple[TopicImage, Writes]:
    """Writes that create a topic, and the topic with its final version, which depends on the number of
    writes.
    """
    path, states = znodes.topic_path(topic.name), _partition_nodes(topic, 0)
    if len(states) <= MAX_PARTITIONS_PER_MULTI:
        return topic, Writes((Create(path, encode_topic(topic)), *states))
    made = replace(topic, version=1)
    announced = Create(path, encode_topic(replace(topic, partitions=()), len(states), writer))
    return made, Writes((Set(path, encode_topic(made), 0),), (announced,), _parts(path, 0, states))


def growth(topic: TopicImage, present: int, writer: str) -> tuple[TopicImage, Writes]:
    """Writes that add the partitions from index `present` on, and the topic with its final version."""
    path, states, version = znodes.topic_path(topic.name), _partition_nodes(topic, present), topic.version - 1
    if len(states) <= MAX_PARTITIONS_PER_MULTI:
        return topic, Writes((Set(path, encode_topic(topic), version), *states))
    grown = replace(topic, version=version + 2)
    before = replace(topic, partitions=topic.partitions[:present])
    announced = Set(path, encode_topic(before, len(topic.partitions), writer), version)
    shown = Set(path, encode_topic(grown), version + 1)
    return grown, Writes((shown,), (announced,), _parts(path, version + 1, states))


def deletion(topic: TopicImage, writer: str) -> Writes:
    path, count = znodes.topic_path(topic.name), len(topic.partitions)
    removals = [Delete(znodes.partition_path(topic.name, index)) for index in range(count)]
    deletion_entry = entry_of(topic.id)
    if count <= MAX_PARTITIONS_PER_MULTI:
        return Writes((*removals, Delete(path, topic.version), deletion_entry))
    hidden = Set(path, encode_topic(replace(topic, partitions=()), count, writer), topic.version)
    version = topic.version + 1
    return Writes((hidden, deletion_entry), after=(*_parts(path, version, removals), [Delete(path, version)]))


def claim(unfinished: UnfinishedChange, writer: str) -> Operation:
    """Operation that takes over an unfinished change in order to clean it up."""
    node = msgspec.structs.replace(unfinished.node, writer=writer)
    return Set(znodes.topic_path(unfinished.topic), znodes.encode(node), unfinished.version)


def cleanup(unfinished: UnfinishedChange) -> Writes:
    """Writes that undo an unfinished change which this broker has claimed: remove its invisible partition
    nodes, then clear `pending`, or delete the topic's node if no partition is visible.
    """
    path, version = znodes.topic_path(unfinished.topic), unfinished.version
    if unfinished.node.partitions:
        settled = msgspec.structs.replace(unfinished.node, pending=0, writer="")
        last: Operation = Set(path, znodes.encode(settled), version)
    else:
        last = Delete(path, version)
    removals = [Delete(znodes.partition_path(unfinished.topic, index)) for index in unfinished.partitions]
    return Writes((last,), before=_parts(path, version, removals))


def _parts(path: str, version: int, operations: Sequence[Operation]) -> tuple[Sequence[Operation], ...]:
    return tuple([Check(path, version), *chunk] for chunk in chunks(operations))


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), MAX_PARTITIONS_PER_MULTI):
        yield items[start : start + MAX_PARTITIONS_PER_MULTI]


def batches(items: Sequence[T], sizes: Sequence[int]) -> Iterator[Sequence[T]]:
    """Split items into batches that fit into one multi, with at least one item each. Sizes are in units of
    `BYTES_PER_PARTITION`.
    """
    start = size = 0
    for end, more in enumerate(sizes):
        if end > start and size + more > MAX_PARTITIONS_PER_MULTI:
            yield items[start:end]
            start, size = end, 0
        size += more
    if start < len(items):
        yield items[start:]


def _partition_nodes(topic: TopicImage, first: int) -> list[Operation]:
    return [
        Create(znodes.partition_path(topic.name, index), encode_partition(topic.partitions[index]))
        for index in range(first, len(topic.partitions))
    ]
