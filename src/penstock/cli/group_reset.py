"""Offsets for `penstock group reset`: planned first, committed with --execute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.cli.admin_client import NO_GROUP
from penstock.cli.cluster_client import ClusterClient, PartitionRange
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.group_description import Offsets, committed_offsets, describe_groups
from penstock.cli.share_group import describe_share_groups, share_group_ids


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """Committed offset of a partition (None if there is none) and its new value."""

    topic: str
    partition: int
    old: int | None
    new: int


Target = Callable[[PartitionRange, int | None, int], int | None]
"""Function that returns the new offset of a partition. Arguments: the partition's range, its committed offset, and its
offset at the given time or in the other group.

The result None leaves the partition unchanged. `plan_reset` limits the new offset to the range of the partition.
"""


@dataclass(frozen=True, slots=True)
class Aim:
    target: Target
    time_ms: int | None = None
    from_group: str | None = None
    """Group to copy committed offsets from. Partitions without a committed offset in it stay unchanged."""


TO_EARLIEST = Aim(lambda held, old, at_time: held.start)
TO_LATEST = Aim(lambda held, old, at_time: held.end)


def to_offset(offset: int) -> Aim:
    return Aim(lambda held, old, at_time: offset)


def to_time(time_ms: int) -> Aim:
    return Aim(lambda held, old, at_time: at_time, time_ms)


def by_shift(count: int) -> Aim:
    return Aim(lambda held, old, at_time: None if old is None else old + count)


def to_offsets_of(group: str) -> Aim:
    return Aim(lambda held, old, copied: copied, from_group=group)


def plan_reset(
    cluster: ClusterClient, group: str, topics: Sequence[str] | None, aim: Aim
) -> list[OffsetReset]:
    """Return the offsets to commit. If `topics` is None, all topics with committed offsets of the group are reset."""
    if group in share_group_ids(cluster):
        committed = _start_offsets(cluster, group)
    else:
        _check_has_no_members(cluster, group)
        committed = committed_offsets(cluster, [group])[group]
    given = None if aim.from_group is None else _copied(cluster, aim.from_group)
    chosen = (
        _partitions(cluster, committed if given is None else given)
        if topics is None
        else _named_partitions(cluster, topics)
    )
    if not chosen:
        raise Failure(f"group {group!r} has no committed offsets", "Name the topics to set with --topic.")
    resets = [
        each
        for topic, numbers in sorted(chosen.items())
        for each in _resets(cluster, topic, numbers, committed, aim, given)
    ]
    if not resets:
        source, verb = (group, "shift") if aim.from_group is None else (aim.from_group, "copy")
        raise Failure(
            f"group {source!r} has no committed offsets in these partitions, so there is nothing to {verb}",
            "Give --to-earliest, --to-latest, --to-offset or --to-time.",
        )
    return resets


def commit_resets(cluster: ClusterClient, group: str, resets: Sequence[OffsetReset]) -> None:
    offsets = {(each.topic, each.partition): each.new for each in resets}
    if group in share_group_ids(cluster):
        cluster.run(lambda client: client.share_groups.reset(group, offsets), f"cannot reset {group}")
    else:
        cluster.run(lambda client: client.groups.reset(group, offsets), f"cannot reset {group}")


def _start_offsets(cluster: ClusterClient, group: str) -> Offsets:
    """Return the start offsets of a share group. Raises Failure if it has members."""
    [found] = describe_share_groups(cluster, [group])
    if found.details.members:
        names = ", ".join(f"{member.id} at {member.host}" for member in found.details.members)
        raise Failure(f"group {group!r} has members: {names}", "Stop the members, then reset the offsets.")
    return {
        (each.topic, each.partition): each.start_offset
        for each in found.partitions
        if each.start_offset is not None
    }


def _resets(
    cluster: ClusterClient,
    topic: str,
    numbers: Sequence[int],
    committed: Offsets,
    aim: Aim,
    copied: Offsets | None,
) -> list[OffsetReset]:
    at_time = {} if aim.time_ms is None else cluster.offsets(topic, numbers, aim.time_ms)
    if copied is not None:
        numbers = [number for number in numbers if (topic, number) in copied]
        at_time = {number: copied[topic, number] for number in numbers}
    resets = []
    for held in cluster.ranges(topic, numbers):
        old = committed.get((topic, held.partition))
        new = aim.target(held, old, at_time.get(held.partition, held.end))
        if new is not None:
            resets.append(OffsetReset(topic, held.partition, old, min(max(new, held.start), held.end)))
    return resets


def _copied(cluster: ClusterClient, source: str) -> Offsets:
    copied = committed_offsets(cluster, [source])[source]
    if not copied:
        raise Failure(f"group {source!r} has no committed offsets", NO_GROUP)
    return copied


def _check_has_no_members(cluster: ClusterClient, group: str) -> None:
    """Raise Failure if the group has members, because their commits would overwrite the new offsets."""
    for found in describe_groups(cluster, [group]):
        if found.members:
            names = ", ".join(f"{member.shown} at {member.host}" for member in found.members)
            raise Failure(
                f"group {group!r} has members: {names}", "Stop the members, then reset the offsets."
            )


def _partitions(cluster: ClusterClient, committed: Offsets) -> dict[str, list[int]]:
    existing = cluster.topics()
    topics = {topic for topic, _ in committed} & existing.keys()
    return {topic: list(range(len(existing[topic].partitions))) for topic in topics}


def _named_partitions(cluster: ClusterClient, names: Sequence[str]) -> dict[str, list[int]]:
    """Parse TOPIC, TOPIC:0 and TOPIC:0,2."""
    chosen: dict[str, set[int]] = {}
    for name in names:
        topic, colon, numbers = name.partition(":")
        try:
            wanted = [int(number) for number in numbers.split(",")] if colon else None
        except ValueError:
            raise Failure(
                f"--topic {name!r} is not TOPIC or TOPIC:PARTITION",
                "Write orders, orders:0 or orders:0,2.",
                code=ExitCode.USAGE,
            ) from None
        chosen.setdefault(topic, set()).update(cluster.partitions_of(topic, wanted))
    return {topic: sorted(numbers) for topic, numbers in chosen.items()}
