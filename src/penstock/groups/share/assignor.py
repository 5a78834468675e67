"""Assignor of share groups: every partition has at least one member, and every member at least one partition
of its topics.

With at most as many members as partitions, each partition has one member, and the members' numbers of
partitions differ by at most one. With more members, each member has one partition, and the partitions'
numbers of members differ by at most one. Members keep their partitions where the balance allows it. Pure;
called by `ShareState`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.groups.consumer.assignors import SubscribedMember, assign_uniform
from penstock.groups.records import Assignment
from penstock.model import TopicId

Place = tuple[TopicId, int]
"""Topic id and partition index."""


def assign_shared(
    topics_of: Mapping[str, frozenset[TopicId]],
    counts: Mapping[TopicId, int],
    previous: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """Assign the partitions 0 to count - 1 of each topic to the members that subscribe to it."""
    places = {
        topic: [(topic, index) for index in range(counts[topic])] for topic in sorted(counts) if counts[topic]
    }
    readers = {member: known for member, topics in topics_of.items() if (known := topics & frozenset(places))}
    wanted = frozenset(topic for topics in readers.values() for topic in topics)
    total = sum(len(places[topic]) for topic in wanted)
    if len(readers) <= total:
        held = _one_member_each(readers, {topic: counts[topic] for topic in wanted}, previous)
    else:
        held = _one_partition_each(readers, places, previous)
    _fill_up(readers, {topic: places[topic] for topic in wanted}, held)
    return {member: _assignment(held.get(member, ())) for member in topics_of}


def _one_member_each(
    readers: Mapping[str, frozenset[TopicId]],
    counts: Mapping[TopicId, int],
    previous: Mapping[str, Assignment],
) -> dict[str, list[Place]]:
    members = {member: SubscribedMember(None, topics) for member, topics in readers.items()}
    assigned = assign_uniform(members, counts, previous)
    return {member: list(_places(assignment)) for member, assignment in assigned.items()}


def _one_partition_each(
    readers: Mapping[str, frozenset[TopicId]],
    places: Mapping[TopicId, list[Place]],
    previous: Mapping[str, Assignment],
) -> dict[str, list[Place]]:
    free = {
        topics: [place for topic in sorted(topics) for place in places[topic]] for topics in readers.values()
    }
    load: dict[Place, int] = {place: 0 for choices in free.values() for place in choices}
    quota, extra = divmod(len(readers), len(load))
    held: dict[str, list[Place]] = {}
    for member in sorted(readers):
        for place in _places(previous.get(member, {})):
            if place in load and place[0] in readers[member] and load[place] < quota + (extra > 0):
                if load[place] == quota:
                    extra -= 1
                load[place] += 1
                held[member] = [place]
                break
    for member in sorted(readers.keys() - held.keys(), key=lambda each: (len(readers[each]), each)):
        place = min(free[readers[member]], key=lambda each: (load[each], each))
        load[place] += 1
        held[member] = [place]
    return held


def _fill_up(
    readers: Mapping[str, frozenset[TopicId]],
    places: Mapping[TopicId, list[Place]],
    held: dict[str, list[Place]],
) -> None:
    """Give partitions without a member one, and members without a partition one. These occur if subscriptions
    differ.
    """
    load = {place: 0 for choices in places.values() for place in choices}
    for choices in held.values():
        for place in choices:
            load[place] += 1
    for place in sorted(place for place, count in load.items() if count == 0):
        members = (member for member, topics in readers.items() if place[0] in topics)
        member = min(members, key=lambda each: (len(held.get(each, ())), each))
        held.setdefault(member, []).append(place)
        load[place] += 1
    for member in sorted(member for member in readers if not held.get(member)):
        choices = [place for topic in sorted(readers[member]) for place in places[topic]]
        place = min(choices, key=lambda each: (load[each], each))
        held[member] = [place]
        load[place] += 1


def _places(assignment: Assignment) -> Iterable[Place]:
    return ((topic, index) for topic in sorted(assignment) for index in sorted(assignment[topic]))


def _assignment(places: Iterable[Place]) -> Assignment:
    found: dict[TopicId, set[int]] = {}
    for topic, index in places:
        found.setdefault(topic, set()).add(index)
    return {topic: frozenset(indexes) for topic, indexes in found.items()}
