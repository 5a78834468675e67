"""Sending of messages whose partition the gateway chooses, among the active partitions of their topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.backend import Backend
from penstock.records.building import NewRecord

Choose = Callable[[NewRecord, int], int]
"""Function that chooses the partition of a record; the second argument is the number of active partitions."""


async def produce_placed(
    backend: Backend, topic: str, records: Sequence[NewRecord], choose: Choose
) -> tuple[list[int], list[int | Exception]]:
    """Store records, and return the partition and the outcome (offset or error) of each.

    If a record is refused because partitions were removed meanwhile, another partition is chosen for it.
    """
    known = (await backend.topics.get(topic)).active_count
    places = [choose(record, known) for record in records]
    outcomes = list(await backend.records.produce_many(topic, list(zip(places, records, strict=True))))
    refused = [place for place, outcome in enumerate(outcomes) if _is_unknown(outcome)]
    if not refused:
        return places, outcomes
    now = (await backend.topics.get(topic, fresh=True)).active_count
    if now < known:
        for place in refused:
            places[place] = choose(records[place], now)
        again = [(places[place], records[place]) for place in refused]
        for place, outcome in zip(refused, await backend.records.produce_many(topic, again), strict=True):
            outcomes[place] = outcome
    return places, outcomes


def _is_unknown(outcome: int | Exception) -> bool:
    return isinstance(outcome, BrokerError) and outcome.code is ErrorCode.unknown_topic_or_partition
