"""Sizes and times of a topic's partitions, read from their leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from penstock.errors import BrokerError
from penstock.internal_client.inspection import InspectionCalls
from penstock.internal_client.topic_routes import TopicRoute
from penstock.model import BrokerId

NO_TIMES: Mapping[str, int | None] = {"bytes": None, "first_time_ms": None, "last_time_ms": None}


async def read_times(inspection: InspectionCalls, topic: TopicRoute) -> dict[int, dict[str, Any]]:
    """Return bytes and times by partition. Partitions whose leader did not respond are missing."""
    leaders = {partition.leader for partition in topic.partitions if partition.leader >= 0}
    found: dict[int, dict[str, Any]] = {}
    for answer in await asyncio.gather(*(_ask(inspection, leader, topic.name) for leader in leaders)):
        for each in answer:
            number = each["partition"]
            found[number] = {name: each[name] for name in NO_TIMES}
    return found


async def _ask(inspection: InspectionCalls, leader: BrokerId, topic: str) -> list[dict[str, Any]]:
    try:
        answer: list[dict[str, Any]] = await inspection.partition_times(leader, topic)
    except (BrokerError, OSError):
        return []
    return answer
