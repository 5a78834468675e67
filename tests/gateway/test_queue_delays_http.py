"""Delayed messages and the maximum length of queues over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from push_stage import Stage, on_stage
from test_queues_http import QUEUE, ask, create, receive, send, settle

from support.whole_brokers import Brokers


def test_delayed_message_is_received_when_it_is_due(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1)
        await send(stage, "later", delay_ms=700)
        await send(stage, "now")
        assert [each["value"] for each in await receive(stage, max=10, wait=5)] == ["now"]
        assert await receive(stage, max=10) == []
        found: list[Any] = []
        while not found:
            found = await receive(stage, max=10, wait=20)
        assert [each["value"] for each in found] == ["later"]

    on_stage(tmp_path, scenario)


def test_full_queue_answers_429_until_a_message_is_settled(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        created = await create(stage, partitions=1, max_length=2)
        assert created["max_length"] == 2
        await send(stage, "a")
        [given] = await receive(stage, max=1, wait=20)
        await send(stage, "b")
        body = {"messages": [{"value": "c"}]}
        refused = await ask(stage, "POST", f"{QUEUE}/messages", body, 429)
        assert refused["error"] == "POLICY_VIOLATION"
        await settle(stage, given["receipt"], "accept")
        await send(stage, "c")

    on_stage(tmp_path, scenario)
