"""Well-formed nonsense and damaged bytes to the APIs of share groups: an answer or a closed connection, and other
members go on.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from fuzz_harness import FUZZ_SECONDS
from kio.schema.index import api_key_map, schema_name_map

from penstock.errors import ProtocolError
from support.harness import Harness
from support.message_samples import random_message
from support.share_wire import ACCEPT, ShareMember, first_take, partition_of, run

APIS = [76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92]
REQUESTS = 15
MAX_WAIT_MS = 20


def plausible(random: Random, message: Any, topic_id: Any) -> Any:
    """Replace values by some that pass the first checks."""
    if isinstance(message, list):
        return [plausible(random, each, topic_id) for each in message]
    if not isinstance(message, dict):
        return message
    likely: dict[str, list[Any]] = {
        "group_id": ["g", "g", "h"],
        "member_id": ["x1", "x2"],
        "topic_id": [topic_id],
        "partition_index": [0],
        "partition": [0],
        "share_session_epoch": [0, 1, 2, -1],
        "member_epoch": [0, 1, -1],
        "max_wait": [0, MAX_WAIT_MS],
        "max_records": [0, 5, 500],
        "max_bytes": [0, 1_000_000],
        "topic_name": ["t"],
        "subscribed_topic_names": [["t"], None],
        "start_offset": [0, 3, -1],
        "first_offset": [0, 3],
        "last_offset": [0, 9, 5],
    }
    return {
        name: random.choice(likely[name])
        if name in likely and random.random() < 0.8
        else plausible(random, value, topic_id)
        for name, value in message.items()
    }


@pytest.mark.parametrize("seed", range(2))
def test_nonsense_has_no_effect_on_other_members(tmp_path: Path, seed: int) -> None:
    random = Random(seed)

    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member, share_acquire_mode=1, max_records=4) == [(0, 3, 1)]
        stranger = ShareMember(broker, "x1")
        for _ in range(REQUESTS * max(1, int(FUZZ_SECONDS / 10))):
            for api in APIS:
                for version in schema_name_map[api_key_map[api]]:
                    message = random_message(random, "request", api, version)
                    fields = plausible(random, message, member.topic_id("t"))
                    if api == 78:
                        fields["max_wait"] = random.choice((0, MAX_WAIT_MS))
                    try:
                        await stranger.broker.ask(api, version, fields)
                    except ProtocolError:
                        continue
        done = await member.acknowledge("t", [(0, 3, [ACCEPT])])
        assert partition_of(done).error_code == 0

    run(tmp_path, scenario)
