"""Webhooks over HTTP: create, describe, pause, resume, rotate, test and delete, and refusals."""

from __future__ import annotations

from pathlib import Path

from push_stage import Stage, on_stage
from test_queues_http import ask, create, send

from support.eventually import eventually_async
from support.webhook_receivers import answer, receiving
from support.whole_brokers import Brokers

WEBHOOKS = "/v1/webhooks"
ALLOWED = {"webhook_allow_private_addresses": "true"}


def test_webhook_resource_from_creation_to_deletion(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1)
        async with receiving(answer(200)) as server:
            body = {"name": "hook", "queue": "orders", "url": server.url, "timeout_s": 5, "concurrency": 2}
            created = await ask(stage, "POST", WEBHOOKS, body, 201)
            assert created["secret"].startswith("whsec_")
            assert (created["timeout_s"], created["concurrency"], created["paused"]) == (5.0, 2, False)
            [listed] = (await ask(stage, "GET", WEBHOOKS))["webhooks"]
            assert (listed["name"], listed["url"]) == ("hook", server.url)
            assert "secret" not in listed
            await send(stage, {"id": 1})
            await eventually_async(lambda: len(server.received) == 1)
            described = await ask(stage, "GET", f"{WEBHOOKS}/hook")
            assert "secret" not in described
            assert (await ask(stage, "POST", f"{WEBHOOKS}/hook/pause"))["paused"] is True
            assert (await ask(stage, "POST", f"{WEBHOOKS}/hook/resume"))["paused"] is False
            tested = await ask(stage, "POST", f"{WEBHOOKS}/hook/test")
            assert (tested["ok"], tested["status"]) == (True, 200)
            altered = await ask(stage, "PATCH", f"{WEBHOOKS}/hook", {"timeout_s": 7, "format": "cloudevent"})
            assert (altered["timeout_s"], altered["format"], altered["concurrency"]) == (7.0, "cloudevent", 2)
            for wrong in ({}, {"url": "file:///etc/passwd"}, {"queue": "other"}, {"concurrency": 0}):
                await ask(stage, "PATCH", f"{WEBHOOKS}/hook", wrong, 400)
            await ask(stage, "PATCH", f"{WEBHOOKS}/nothing", {"concurrency": 1}, 404)
            rotated = await ask(stage, "POST", f"{WEBHOOKS}/hook/rotate-secret", {"overlap_s": 60})
            assert rotated["secrets"] == 2
            assert rotated["secret"] not in ("", created["secret"])
            await ask(stage, "DELETE", f"{WEBHOOKS}/hook", status=204)
            await ask(stage, "GET", f"{WEBHOOKS}/hook", status=404)

    on_stage(tmp_path, scenario, of_brokers=ALLOWED)


def test_bad_webhooks_are_refused_with_a_problem(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1)
        good = {"name": "hook", "queue": "orders", "url": "https://example.invalid/"}
        for wrong, status in (
            ({"url": "file:///etc/passwd"}, 400),
            ({"url": "http://127.0.0.1/"}, 400),
            ({"url": "http://u:p@example.invalid/"}, 400),
            ({"concurrency": 1_000}, 400),
            ({"timeout_s": 0}, 400),
            ({"topic": "orders"}, 400),
            ({"queue": "nowhere"}, 404),
            ({"format": "xml"}, 400),
            ({"secret": "whsec_!!"}, 400),
        ):
            await ask(stage, "POST", WEBHOOKS, good | wrong, status)
        assert (await ask(stage, "GET", WEBHOOKS))["webhooks"] == []
        await ask(stage, "POST", WEBHOOKS, good, 201)
        await ask(stage, "POST", WEBHOOKS, good, 409)

    on_stage(tmp_path, scenario)
