"""Well-formed nonsense to every API of groups: each request gets a response, and the group is usable afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kio.schema.index import api_key_map, schema_name_map

from support import group_wire
from support.group_wire import JOIN_GROUP, join_fields, joined
from support.harness import Fields, Harness, serve
from support.message_samples import random_message

GROUP_APIS = [8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47, 61, 68, 69, 74]
REQUESTS_PER_VERSION = 25
SESSION_MS = 200
SETTINGS = group_wire.SETTINGS | {
    "group.min.session.timeout.ms": "1",
    "group.max.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "50",
}
LIKELY: dict[str, list[Any]] = {
    "group_id": ["g", "g", "h", ""],
    "key": ["g", ""],
    "name": ["a", "b"],
    "topic_name": ["a"],
    "session_timeout": [SESSION_MS, 1],
    "rebalance_timeout": [SESSION_MS, 0, -1],
    "protocol_type": ["consumer", "connect"],
    "member_epoch": [0, 1, -1, -2],
    "generation_id": [0, 1, -1],
    "generation_id_or_member_epoch": [0, 1, -1],
    "partition_index": [0, 1],
    "subscribed_topic_regex": ["a.*", None],
}
"""Values close enough to valid ones to pass the first check."""


def plausible(random: Random, message: Any, member_ids: list[str]) -> Any:
    if isinstance(message, list):
        return [plausible(random, item, member_ids) for item in message]
    if not isinstance(message, dict):
        return message
    changed = {}
    for name, value in message.items():
        likely = member_ids if name == "member_id" else LIKELY.get(name, [])
        changed[name] = (
            random.choice(likely)
            if likely and random.random() < 0.7
            else plausible(random, value, member_ids)
        )
    return changed


@pytest.mark.parametrize("seed", range(2))
def test_nonsense_group_requests_are_answered_and_leave_the_group_usable(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    member_ids = ["", "m"]

    async def send(broker: Harness, api_key: int, version: int, fields: Fields) -> None:
        answer = await asyncio.wait_for(broker.ask(api_key, version, fields), 30)
        new = getattr(answer, "member_id", None)
        if new:
            member_ids.append(new)

    async def scenario(broker: Harness) -> None:
        await broker.create("a", partitions=2)
        await broker.create("b")
        await joined(broker, session_timeout=SESSION_MS)
        for api_key in GROUP_APIS:
            for version in sorted(schema_name_map[api_key_map[api_key]]):
                await asyncio.gather(
                    *(
                        send(
                            broker,
                            api_key,
                            version,
                            plausible(
                                random, random_message(random, "request", api_key, version), member_ids
                            ),
                        )
                        for _ in range(REQUESTS_PER_VERSION)
                    )
                )
                del member_ids[2:-20]
        async with asyncio.timeout(30):
            while (await broker.ask(JOIN_GROUP, 3, join_fields(session_timeout=SESSION_MS))).error_code != 0:
                await asyncio.sleep(SESSION_MS / 1_000)

    serve(tmp_path, scenario, SETTINGS)
