"""Even distribution of partitions over members that keeps previous assignments where possible. For
`assign_uniform`.

If all members subscribe to the same topics, their partition counts differ by one at most, and no partition
moves without need. Otherwise, no single move between two members would make the counts more even.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from penstock.groups.records import Assignment
from penstock.model import TopicId


def balance_same(
    members: Sequence[str], partition_counts: Mapping[TopicId, int], previous: Mapping[str, Assignment]
) -> dict[str, Assignment]:
    """Distribute partitions over members that all subscribe to the same topics."""
    quota, extra = divmod(sum(partition_counts.values()), len(members))
    assigned, free = _kept(dict.fromkeys(members, partition_counts.keys()), partition_counts, previous)
    sizes = {member: _size(of_member) for member, of_member in assigned.items()}
    wanted: dict[str, int] = {}
    for member in members:  # Members above their share may keep one extra partition, while there are any.
        if sizes[member] > quota and extra:
            extra -= 1
            wanted[member] = quota + 1
    for member in members:
        if member not in wanted:
            wanted[member] = quota + (extra > 0)
            extra -= extra > 0
    for member in members:
        for topic, partition in _surplus(assigned[member], sizes[member] - wanted[member]):
            assigned[member][topic].discard(partition)
            free[topic].append(partition)
    _deal(assigned, {member: wanted[member] - sizes[member] for member in members}, free)
    return _frozen(assigned, previous)


def _deal(
    assigned: Mapping[str, dict[TopicId, set[int]]],
    missing: Mapping[str, int],
    free: Mapping[TopicId, list[int]],
) -> None:
    """Assign the free partitions to members in turn, so that the partitions of a topic are spread."""
    takers = [(member, count) for member, count in missing.items() if count > 0]
    waiting = [(topic, partition) for topic, partitions in free.items() for partition in sorted(partitions)]
    waiting.reverse()
    while waiting:
        for member, _ in takers:
            topic, partition = waiting.pop()
            assigned[member].setdefault(topic, set()).add(partition)
        takers = [(member, count - 1) for member, count in takers if count > 1]


def balance_mixed(
    topics_of: Mapping[str, frozenset[TopicId]],
    partition_counts: Mapping[TopicId, int],
    previous: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """Distribute partitions over members with different subscriptions."""
    members_of: dict[TopicId, list[str]] = {}
    for member, topics in topics_of.items():
        for topic in topics:
            members_of.setdefault(topic, []).append(member)
    counts = {topic: partition_counts[topic] for topic in members_of}
    assigned, free = _kept(topics_of, counts, previous)
    loads = {member: _size(of_member) for member, of_member in assigned.items()}
    # Topics with few subscribers come first, before these are loaded with partitions of other topics.
    order = sorted(members_of, key=lambda topic: (len(members_of[topic]), topic))
    for topic in order:
        _hand_out(topic, sorted(free[topic]), members_of[topic], assigned, loads)
    is_level = False
    while not is_level:
        moves = [_level(topic, members_of[topic], assigned, loads) for topic in order]
        is_level = not any(moves)
    return _frozen(assigned, previous)


def _hand_out(
    topic: TopicId,
    partitions: Sequence[int],
    members: Sequence[str],
    assigned: Mapping[str, dict[TopicId, set[int]]],
    loads: dict[str, int],
) -> None:
    """Assign each partition of the topic to the subscriber with the fewest partitions."""
    if not partitions:
        return
    heap = [(loads[member], member) for member in members]
    heapify(heap)
    for partition in partitions:
        load, member = heap[0]
        assigned[member].setdefault(topic, set()).add(partition)
        loads[member] = load + 1
        heapreplace(heap, (load + 1, member))


def _level(
    topic: TopicId,
    members: Sequence[str],
    assigned: Mapping[str, dict[TopicId, set[int]]],
    loads: dict[str, int],
) -> bool:
    """Move partitions of the topic from the most to the least loaded member as long as that evens out the
    loads. Returns True if any was moved. Each move makes the loads more even, so the loop ends.
    """
    givers = [(-loads[member], member) for member in members if assigned[member].get(topic)]
    if not givers:
        return False
    least = min(loads[member] for member in members)
    if -min(givers)[0] - least < 2:
        return False
    takers = [(loads[member], member) for member in members]
    heapify(givers)
    heapify(takers)
    moved = False
    while (pair := _next_pair(givers, takers, loads)) is not None:
        giver, taker = pair
        partition = max(assigned[giver][topic])
        assigned[giver][topic].discard(partition)
        assigned[taker].setdefault(topic, set()).add(partition)
        loads[giver] -= 1
        loads[taker] += 1
        moved = True
        if assigned[giver][topic]:
            heappush(givers, (-loads[giver], giver))
    return moved


def _next_pair(
    givers: list[tuple[int, str]], takers: list[tuple[int, str]], loads: Mapping[str, int]
) -> tuple[str, str] | None:
    """Remove the most loaded giver from the heap and return it with the least loaded taker; None if no move
    between them would even out the loads. Heap entries with an outdated load are corrected.
    """
    while givers:
        negative_load, giver = givers[0]
        load, taker = takers[0]
        if load != loads[taker]:
            heapreplace(takers, (loads[taker], taker))
        elif -negative_load != loads[giver]:
            heapreplace(givers, (-loads[giver], giver))
        elif loads[giver] - load < 2:
            return None
        else:
            heappop(givers)
            return giver, taker
    return None


def _kept(
    topics_of: Mapping[str, Container[TopicId]],
    partition_counts: Mapping[TopicId, int],
    previous: Mapping[str, Assignment],
) -> tuple[dict[str, dict[TopicId, set[int]]], dict[TopicId, list[int]]]:
    """Return the previous partitions that members may keep, by member, and the remaining partitions by topic."""
    left = {topic: set(range(count)) for topic, count in partition_counts.items()}
    assigned: dict[str, dict[TopicId, set[int]]] = {}
    for member, topics in topics_of.items():
        of_member = assigned[member] = {}
        for topic, partitions in previous.get(member, {}).items():
            if topic in topics:
                kept = left[topic] & partitions
                left[topic] -= kept
                of_member[topic] = kept
    return assigned, {topic: list(partitions) for topic, partitions in left.items()}


def _surplus(of_member: Mapping[TopicId, set[int]], count: int) -> list[tuple[TopicId, int]]:
    if count <= 0:
        return []
    everything = [(partition, topic) for topic, partitions in of_member.items() for partition in partitions]
    return [(topic, partition) for partition, topic in sorted(everything)[-count:]]


def _size(of_member: Mapping[TopicId, set[int]]) -> int:
    return sum(map(len, of_member.values()))


def _frozen(
    assigned: Mapping[str, dict[TopicId, set[int]]], previous: Mapping[str, Assignment]
) -> dict[str, Assignment]:
    """Build the result. A member whose assignment is unchanged gets the previous object."""
    result: dict[str, Assignment] = {}
    for member, of_member in assigned.items():
        had = previous.get(member)
        if had is not None and of_member == had:
            result[member] = had
        else:
            result[member] = {topic: frozenset(parts) for topic, parts in of_member.items() if parts}
    return result
