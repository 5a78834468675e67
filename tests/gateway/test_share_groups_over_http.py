"""Share groups over HTTP: start offsets, lag and records in flight, and a reset of the start offsets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from figures_stage import client, produce, serving

from support.harness import Harness
from support.share_wire import ACCEPT, ShareMember, configure, first_take
from support.whole_brokers import Brokers, run


async def reset(http: httpx.AsyncClient, **body: Any) -> httpx.Response:
    return await http.post("/v1/groups/g/reset", json=body)


def test_share_group_is_described_and_reset(tmp_path: Path) -> None:
    async def body(brokers: Brokers) -> None:
        broker = Harness((await brokers.start(1))._broker)
        await serving(brokers, 1)
        async with client(brokers, 1) as http:
            await http.post("/v1/topics", json={"name": "t", "partitions": 1})
            await produce(http, "t", *"abcdefghij", partition=0)
            await configure(broker, auto_offset_reset="earliest")
            member = ShareMember(broker)
            await member.join("t")
            assert await first_take(member) == [(0, 9, 1)]
            await member.acknowledge("t", [(0, 3, [ACCEPT])])
            described = (await http.get("/v1/groups/g")).json()
            [shown] = described["share_partitions"]
            assert shown.pop("oldest_lock_ms") >= 0
            assert shown == {
                "topic": "t",
                "partition": 0,
                "start_offset": 4,
                "lag": 6,
                "in_flight": 6,
                "waiting": 0,
            }
            assert (described["type"].lower(), described["lag"]) == ("share", 6)
            assert (await reset(http, topic="t", to="earliest")).status_code == 409
            await member.heartbeat(member_epoch=-1)
            await member.fetch(None, share_session_epoch=-1)
            shown = (await reset(http, topic="t", shift=-2, dry_run=True)).json()["offsets"]
            assert shown == [{"topic": "t", "partition": 0, "offset": 2, "before": 4}]
            assert (await reset(http, topic="t", to="earliest")).status_code == 200
            [shown] = (await http.get("/v1/groups/g")).json()["share_partitions"]
            assert (shown["start_offset"], shown["lag"], shown["in_flight"]) == (0, 10, 0)

    run(tmp_path, body, http_port="0", durability="os", offsets_topic_num_partitions="1")
