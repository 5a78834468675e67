"""Priorities and order by key of queues over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from push_stage import Stage, on_stage
from test_queues_http import QUEUE, ask, create, receive, send, settle

from support.whole_brokers import Brokers


@pytest.mark.parametrize("brokers", [1, 2])
def test_messages_of_a_higher_priority_are_received_first(tmp_path: Path, brokers: int) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        created = await create(stage, partitions=1, priorities=True, priority_share=0.0)
        assert (created["priorities"], created["priority_share"], created["order"]) == (True, 0.0, "none")
        await send(stage, "low", "lowest")
        await send(stage, "middle", priority=5)
        await send(stage, "high", "higher", priority=9)
        found = await receive(stage, max=10, wait=20)
        assert [each["value"] for each in found] == ["high", "higher", "middle", "low", "lowest"]
        assert found[2]["headers"]["penstock-priority"] == "5"
        for each in found:
            assert (await settle(stage, each["receipt"], "accept"))["status"] == "ok"

    on_stage(tmp_path, scenario, brokers=brokers)


def test_key_has_one_message_in_flight_until_it_is_settled(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1, order="key")
        await send(stage, 1, 2, key="alice")
        await send(stage, 3, key="bob")
        first, other = await receive(stage, max=10, wait=20)
        assert (first["value"], other["value"]) == (1, 3)
        assert await receive(stage, max=10) == []
        await settle(stage, first["receipt"], "release", delay_ms=0)
        [again] = await receive(stage, max=10, wait=20)
        assert (again["value"], again["attempt"]) == (1, 2)
        await settle(stage, again["receipt"], "accept")
        [second] = await receive(stage, max=10, wait=20)
        assert second["value"] == 2
        await ask(stage, "PATCH", QUEUE, {"order": None})
        await send(stage, 4, 5, key="carol")
        found: list[Any] = []
        while len(found) < 2:
            found += await receive(stage, max=10, wait=20)
        assert [each["value"] for each in found] == [4, 5]

    on_stage(tmp_path, scenario)


@pytest.mark.parametrize("priority", [10, -1, "high", "5", 1.5, True])
def test_wrong_priority_is_refused_and_nothing_is_sent(tmp_path: Path, priority: Any) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1, priorities=True)
        body = {"messages": [{"value": "good"}, {"value": "bad", "priority": priority}]}
        answer = await ask(stage, "POST", f"{QUEUE}/messages", body, 400)
        assert "priority" in str(answer)
        assert (await ask(stage, "GET", QUEUE))["depth"] == 0

    on_stage(tmp_path, scenario)


@pytest.mark.parametrize(
    "settings", [{"order": "fifo"}, {"priorities": "yes"}, {"priority_share": 0.9}, {"priority_share": -1}]
)
def test_wrong_order_is_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await ask(stage, "POST", "/v1/queues", {"name": "orders", **settings}, 400)
        assert await ask(stage, "GET", "/v1/queues") == {"queues": []}

    on_stage(tmp_path, scenario)
