"""Metadata change, computed from an image without IO, and helpers to check the items of a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.cluster.change_list import Scope
from penstock.cluster.image import ClusterImage, PartitionState, TopicImage
from penstock.cluster.topic_writes import NOTHING, Writes
from penstock.errors import BrokerError, ErrorCode
from penstock.model import TopicPartition

NO_SCOPE = Scope()

Rule = Callable[[ClusterImage, TopicPartition, PartitionState], PartitionState | None]
"""Function that computes the new state of a partition; None if nothing changes."""

R = TypeVar("R")
T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class MetadataChange(Generic[R]):
    """Change of the coordination store: the writes (perhaps none), the scope that brokers read again, and the
    result for the caller.
    """

    result: R
    writes: Writes = NOTHING
    scope: Scope = NO_SCOPE


def attempt(judge: Callable[[T], V], item: T, repeated: bool) -> V | BrokerError:
    if repeated:
        return BrokerError(ErrorCode.invalid_request, "the same resource is named twice in one request")
    try:
        return judge(item)
    except BrokerError as error:
        return error


def repeated_in(names: Sequence[Hashable]) -> set[Hashable]:
    return {name for name, count in Counter(names).items() if count > 1}


def scope_of(topics: Sequence[TopicImage]) -> Scope:
    return Scope(frozenset(topic.name for topic in topics))


def existing_topic(image: ClusterImage, name: str) -> TopicImage:
    topic = image.topic(name)
    if topic is None:
        raise BrokerError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name[:80]!r}")
    return topic


def change_of_topics(
    plans: Sequence[TopicImage | BrokerError], write: Callable[[TopicImage], tuple[TopicImage, Writes]]
) -> MetadataChange[list[TopicImage | BrokerError]]:
    """Change that writes the planned topics. Errors in `plans` are passed on in the result."""
    results: list[TopicImage | BrokerError] = []
    writes = NOTHING
    for plan in plans:
        if isinstance(plan, TopicImage):
            plan, more = write(plan)
            writes += more
        results.append(plan)
    made = [result for result in results if isinstance(result, TopicImage)]
    return MetadataChange(results, writes, scope_of(made))
