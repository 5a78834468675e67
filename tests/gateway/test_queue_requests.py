"""Requests over queues with HTTP: a reply comes back, the first one counts, and none is a 504."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from push_stage import Stage, on_stage
from test_queues_http import QUEUE, ask, create, receive, settle

from support.whole_brokers import Brokers


@pytest.mark.parametrize("brokers", [1, 2])
def test_request_gets_the_first_reply(tmp_path: Path, brokers: int) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=3)
        body = {"value": {"a": 1}, "key": "k", "timeout": 20}
        asked = asyncio.create_task(ask(stage, "POST", f"{QUEUE}/requests", body))
        [message] = await receive(stage, wait=20)
        assert message["value"] == {"a": 1}
        reply = {"reply_to": message["headers"]["penstock-reply-to"], "value": {"b": 2}}
        assert await ask(stage, "POST", f"{QUEUE}/replies", reply) == {"stored": True}
        assert await asked == {"value": {"b": 2}}
        assert await ask(stage, "POST", f"{QUEUE}/replies", reply) == {"stored": True}
        assert await ask(stage, "POST", f"{QUEUE}/replies", reply | {"value": 3}) == {"stored": False}
        assert (await settle(stage, message["receipt"], "accept"))["status"] == "ok"

    on_stage(tmp_path, scenario, brokers=brokers)


@pytest.mark.slow
def test_request_without_a_reply_is_a_504_and_expires(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1)
        problem = await ask(stage, "POST", f"{QUEUE}/requests", {"value": 1, "timeout": 1}, 504)
        assert problem["error"] == "REQUEST_TIMED_OUT"
        assert await receive(stage) == []
        await ask(stage, "POST", "/v1/queues/nowhere/requests", {"value": 1}, 404)

    on_stage(tmp_path, scenario)


@pytest.mark.parametrize(
    "place", ["", "orders/0/key", "other-replies/0/key", "orders-replies/x/key", "orders-replies/0/k/y"]
)
def test_reply_to_a_foreign_place_is_refused(tmp_path: Path, place: str) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1)
        await ask(stage, "POST", f"{QUEUE}/replies", {"reply_to": place, "value": 1}, 400)

    on_stage(tmp_path, scenario)
