"""Queues over HTTP: create, send, receive, settle, peek, purge and delete, on one broker and on two."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from push_stage import Stage, on_stage

from support.whole_brokers import Brokers

QUEUE = "/v1/queues/orders"


async def ask(stage: Stage, method: str, path: str, body: Any = None, status: int = 200) -> Any:
    answer = await stage.http.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


async def create(stage: Stage, **body: Any) -> Any:
    return await ask(stage, "POST", "/v1/queues", {"name": "orders", **body}, 201)


async def send(stage: Stage, *values: Any, queue: str = QUEUE, **options: Any) -> None:
    messages = [{"value": value, **options} for value in values]
    await ask(stage, "POST", f"{queue}/messages", {"messages": messages})


async def receive(stage: Stage, queue: str = QUEUE, **body: Any) -> list[Any]:
    return list((await ask(stage, "POST", f"{queue}/receive", body))["messages"])


async def settle(stage: Stage, receipt: str, action: str, queue: str = QUEUE, **more: Any) -> Any:
    body = {"settlements": [{"receipt": receipt, "action": action, **more}]}
    [result] = (await ask(stage, "POST", f"{queue}/settlements", body))["results"]
    return result


@pytest.mark.parametrize("brokers", [1, 2])
def test_messages_are_received_and_settled(tmp_path: Path, brokers: int) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        created = await create(stage, partitions=3, lock_s=20, max_attempts=4, back_off="1s,10s")
        assert created == {
            "name": "orders",
            "topic": "orders",
            "lock_s": 20.0,
            "max_attempts": 4,
            "back_off": "1s,10s",
            "dead_letter": "",
            "of": "",
            "filter": "",
            "order": "none",
            "priorities": False,
            "priority_share": 0.0,
            "max_length": 0,
            "max_length_policy": "refuse",
        }
        await send(stage, {"id": 7}, "text", 3.5, key="alice")
        await send(stage, None)
        found: list[Any] = []
        while len(found) < 4:
            found += await receive(stage, max=10, wait=20)
        assert sorted(map(str, (each["value"] for each in found))) == ["3.5", "None", "text", "{'id': 7}"]
        assert {each["attempt"] for each in found} == {1}
        assert [each["key"] for each in found].count("alice") == 3
        for each in found:
            assert (await settle(stage, each["receipt"], "accept"))["status"] == "ok"
        assert await receive(stage) == []
        described = await ask(stage, "GET", QUEUE)
        assert (described["depth"], described["in_flight"]) == (0, 0)

    on_stage(tmp_path, scenario, brokers=brokers)


def test_receive_waits_for_a_message(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=4)
        assert await receive(stage) == []
        waiting = asyncio.create_task(receive(stage, wait=20))
        await asyncio.sleep(0)
        await send(stage, "one")
        assert [each["value"] for each in await waiting] == ["one"]

    on_stage(tmp_path, scenario, brokers=2)


def test_release_reject_and_extend(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1)
        await send(stage, "a", "b")
        first, second = await receive(stage, max=2)
        assert (await settle(stage, first["receipt"], "release", delay_ms=0))["status"] == "ok"
        assert (await settle(stage, second["receipt"], "extend", lock_s=100))["status"] == "ok"
        [again] = await receive(stage)
        assert (again["value"], again["attempt"]) == ("a", 2)
        assert (await settle(stage, again["receipt"], "reject", reason="bad"))["status"] == "ok"
        assert (await settle(stage, second["receipt"], "release", delay_ms=3_600_000))["status"] == "ok"
        assert await receive(stage) == []
        described = await ask(stage, "GET", QUEUE)
        assert (described["depth"], described["delayed"]) == (1, 1)

    on_stage(tmp_path, scenario)


def test_wrong_receipts_get_an_error_each(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1)
        await ask(stage, "POST", "/v1/queues", {"name": "other", "of": "orders"}, 201)
        await send(stage, "a")
        [given] = await receive(stage)
        receipt = given["receipt"]
        forged = ("B" if receipt[-1] != "B" else "A").join((receipt[:-1], ""))
        body = {
            "settlements": [
                {"receipt": "nonsense", "action": "accept"},
                {"receipt": forged, "action": "accept"},
                {"receipt": receipt, "action": "accept"},
                {"receipt": receipt, "action": "accept"},
            ]
        }
        results = (await ask(stage, "POST", f"{QUEUE}/settlements", body))["results"]
        assert [each["status"] for each in results] == ["error", "error", "ok", "error"]
        assert {each["error"] for each in results if each["status"] == "error"} == {"INVALID_RECORD_STATE"}
        [other] = await receive(stage, "/v1/queues/other")
        assert other["value"] == "a"
        assert (await settle(stage, other["receipt"], "accept"))["status"] == "error"
        foreign = await settle(stage, other["receipt"], "accept", queue="/v1/queues/other")
        assert foreign["status"] == "ok"

    on_stage(tmp_path, scenario)


def test_peek_purge_alter_list_and_delete(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1)
        await send(stage, "a", "b", "c")
        [taken] = await receive(stage)
        shown = (await ask(stage, "GET", f"{QUEUE}/peek?max=2"))["messages"]
        assert [(each["value"], each["attempt"]) for each in shown] == [("a", 1), ("b", 0)]
        changed = await ask(stage, "PATCH", QUEUE, {"lock_s": 5, "back_off": "exponential:1s:1m"})
        assert (changed["lock_s"], changed["back_off"]) == (5.0, "exponential:1s:1m")
        assert (await ask(stage, "PATCH", QUEUE, {"lock_s": None}))["lock_s"] == 30.0
        assert [each["name"] for each in (await ask(stage, "GET", "/v1/queues"))["queues"]] == ["orders"]
        assert (await ask(stage, "POST", f"{QUEUE}/purge"))["purged"] == 3
        assert (await settle(stage, taken["receipt"], "accept"))["status"] == "error"
        await send(stage, "d")
        [fresh] = await receive(stage, wait=20)
        assert fresh["value"] == "d"
        await ask(stage, "DELETE", QUEUE, status=204)
        await ask(stage, "GET", QUEUE, status=404)
        await ask(stage, "GET", "/v1/topics/orders", status=404)
        assert (await ask(stage, "GET", "/v1/queues"))["queues"] == []

    on_stage(tmp_path, scenario)


def test_queue_of_a_topic_starts_where_it_was_told(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1)
        await send(stage, "old")
        await ask(stage, "POST", "/v1/queues", {"name": "all", "of": "orders"}, 201)
        await ask(stage, "POST", "/v1/queues", {"name": "new", "of": "orders", "from": "end"}, 201)
        await send(stage, "fresh")
        assert len(await receive(stage, "/v1/queues/all", max=10)) == 2
        assert [each["value"] for each in await receive(stage, "/v1/queues/new", max=10)] == ["fresh"]
        await ask(stage, "DELETE", "/v1/queues/all", status=204)
        assert len(await receive(stage, max=10)) == 2

    on_stage(tmp_path, scenario)


def test_partitions_that_were_added_are_received(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1)
        await send(stage, "a")
        await ask(stage, "PATCH", "/v1/topics/orders", {"partitions": 2})
        body = {"messages": [{"value": "b", "partition": 1}]}
        await ask(stage, "POST", "/v1/topics/orders/messages", body)
        found: list[Any] = []
        for _ in range(20):
            found += await receive(stage, max=10, wait=1)
            if len(found) == 2:
                break
        assert sorted(each["value"] for each in found) == ["a", "b"]

    on_stage(tmp_path, scenario)


def test_bad_input_is_refused(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1)
        refused = [
            ({"name": "x", "back_off": ",".join(["1s"] * 1_000)}, 400),
            ({"name": "x", "back_off": "-1s"}, 400),
            ({"name": "x", "lock_s": -1}, 400),
            ({"name": "x", "max_attempts": 1}, 400),
            ({"name": "x", "of": "missing"}, 404),
            ({"name": "x", "of": "orders", "partitions": 3}, 400),
            ({"name": "no such name!"}, 400),
            ({"name": "x", "retain": "for ever"}, 400),
            ({"name": "x", "of": "orders", "retain": "acknowledged"}, 400),
            ({"name": "orders"}, 409),
        ]
        for body, status in refused:
            await ask(stage, "POST", "/v1/queues", body, status)
        await ask(stage, "POST", f"{QUEUE}/messages", {"messages": [{"value": 1, "delay_ms": -1}]}, 400)
        await ask(stage, "POST", f"{QUEUE}/receive", {"max": 0}, 400)
        await ask(stage, "POST", f"{QUEUE}/receive", {"lock_s": 0}, 400)
        await ask(stage, "POST", "/v1/queues/missing/receive", {}, 404)
        body = {"settlements": [{"receipt": "x", "action": "destroy"}]}
        await ask(stage, "POST", f"{QUEUE}/settlements", body, 400)
        assert [each["name"] for each in (await ask(stage, "GET", "/v1/queues"))["queues"]] == ["orders"]

    on_stage(tmp_path, scenario)


async def dead_letters(stage: Stage, parameters: str = "") -> list[Any]:
    return list((await ask(stage, "GET", f"{QUEUE}/dead-letters{parameters}"))["messages"])


async def eventual_letters(stage: Stage, count: int) -> list[Any]:
    for _ in range(200):
        found = await dead_letters(stage)
        if len(found) >= count:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"not {count} dead letters: {found}")


@pytest.mark.parametrize("brokers", [1, 2])
def test_rejected_messages_are_redriven_once(tmp_path: Path, brokers: int) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=2, dead_letter="orders-dead")
        await send(stage, *[{"id": number} for number in range(6)])
        taken: list[Any] = []
        while len(taken) < 6:
            taken += await receive(stage, max=10, wait=20)
        for each in taken:
            action = "reject" if each["value"]["id"] < 4 else "accept"
            assert (await settle(stage, each["receipt"], action, reason="no stock"))["status"] == "ok"
        letters = await eventual_letters(stage, 4)
        assert sorted(each["value"]["id"] for each in letters) == [0, 1, 2, 3]
        assert {each["reason"] for each in letters} == {"rejected"}
        assert {each["detail"] for each in letters} == {"no stock"}
        dry = await ask(stage, "POST", f"{QUEUE}/redrives", {"dry_run": True})
        assert (dry["redriven"], dry["selected"]) == (0, 4)
        chosen = {"filter": "json.id == 2"}
        assert (await ask(stage, "POST", f"{QUEUE}/redrives", chosen))["redriven"] == 1
        assert (await ask(stage, "POST", f"{QUEUE}/redrives", chosen))["redriven"] == 0
        assert sorted(each["value"]["id"] for each in await dead_letters(stage)) == [0, 1, 3]
        assert (await ask(stage, "POST", f"{QUEUE}/redrives", {}))["redriven"] == 3
        assert (await ask(stage, "POST", f"{QUEUE}/redrives", {}))["redriven"] == 0
        again: list[Any] = []
        while len(again) < 4:
            again += await receive(stage, max=10, wait=20)
        assert sorted(each["value"]["id"] for each in again) == [0, 1, 2, 3]
        assert {each["attempt"] for each in again} == {1}
        assert not any("penstock-dead-reason" in each["headers"] for each in again)
        assert await dead_letters(stage) == []
        for each in again:
            await settle(stage, each["receipt"], "reject")
        await eventual_letters(stage, 4)
        assert (await ask(stage, "POST", f"{QUEUE}/dead-letters/purge"))["purged"] == 4
        assert await dead_letters(stage) == []

    on_stage(tmp_path, scenario, brokers=brokers)


def test_interrupted_redrive_sends_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.internal_client.transactions import TransactionCalls

    real = TransactionCalls.end
    is_broken = True

    async def end(self: TransactionCalls, producer: Any, *, is_commit: bool) -> None:
        if is_broken:
            raise asyncio.CancelledError  # as if the process had died before the commit
        await real(self, producer, is_commit=is_commit)

    async def scenario(stage: Stage, brokers: Brokers) -> None:
        nonlocal is_broken
        await create(stage, partitions=1, dead_letter="orders-dead")
        await send(stage, "a", "b")
        for each in await receive(stage, max=10, wait=20):
            await settle(stage, each["receipt"], "reject")
        await eventual_letters(stage, 2)
        queue = await stage.backend.queues.get("orders")
        from penstock.internal_client.dead_letters import Selection

        monkeypatch.setattr(TransactionCalls, "end", end)
        with pytest.raises(asyncio.CancelledError):
            await stage.backend.dead_letters.redrive(queue, Selection())
        is_broken = False
        assert await stage.backend.dead_letters.redrive(queue, Selection()) == 2
        assert await stage.backend.dead_letters.redrive(queue, Selection()) == 0
        again: list[Any] = []
        while len(again) < 2:
            again += await receive(stage, max=10, wait=20)
        assert sorted(each["value"] for each in again) == ["a", "b"]
        assert await receive(stage, max=10, wait=0.2) == []

    on_stage(tmp_path, scenario)


def test_wrong_dead_letter_topics_are_refused(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1)
        await ask(stage, "GET", f"{QUEUE}/dead-letters", status=404)
        for name in ("orders", "__consumer_offsets"):
            await ask(stage, "PATCH", QUEUE, {"dead_letter": name}, 400)
        await ask(stage, "PATCH", QUEUE, {"dead_letter": "second"})
        await ask(stage, "POST", "/v1/queues", {"name": "q2", "of": "second", "dead_letter": "orders"}, 400)
        assert (await ask(stage, "GET", QUEUE))["dead_letter"] == "second"
        await ask(stage, "POST", f"{QUEUE}/redrives", {"to": "second"}, 400)
        await ask(stage, "POST", f"{QUEUE}/redrives", {"filter": "no such("}, 400)
        await ask(stage, "POST", f"{QUEUE}/redrives", {"to": "missing-topic"}, 404)

    on_stage(tmp_path, scenario)


def test_expired_message_is_not_delivered_and_becomes_a_dead_letter(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=1, dead_letter="orders-dead")
        await send(stage, "short", ttl_ms=1)
        await send(stage, "long", ttl_ms=3_600_000)
        await send(stage, "past", headers={"penstock-expires-at": "2020-01-01T00:00:00Z"})
        await asyncio.sleep(0.01)
        found: list[Any] = []
        while not found:
            found += await receive(stage, max=10, wait=20)
        assert [each["value"] for each in found] == ["long"]
        assert await receive(stage, max=10) == []
        letters = await eventual_letters(stage, 2)
        assert [(each["value"], each["reason"]) for each in letters] == [
            ("short", "expired"),
            ("past", "expired"),
        ]

    on_stage(tmp_path, scenario)


@pytest.mark.parametrize("brokers", [1, 2])
def test_queues_with_filters_receive_their_part(tmp_path: Path, brokers: int) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage, partitions=3)
        part = {"name": "eu", "of": "orders", "route": "invoice.*.eu"}
        created = await ask(stage, "POST", "/v1/queues", part, 201)
        assert (created["topic"], created["of"], created["filter"]) == (
            "eu",
            "orders",
            'route("invoice.*.eu")',
        )
        routed = [("invoice.paid.eu", 1), ("invoice.paid.us", 2), ("invoice.eu", 3), ("invoice.new.eu", 4)]
        for route, value in routed:
            await send(stage, value, headers={"penstock-route": route})
        found: list[Any] = []
        while len(found) < 2:
            found += await receive(stage, "/v1/queues/eu", max=10, wait=20)
        assert sorted(each["value"] for each in found) == [1, 4]
        for each in found:
            assert (await settle(stage, each["receipt"], "accept", "/v1/queues/eu"))["status"] == "ok"
        changed = await ask(stage, "PATCH", "/v1/queues/eu", {"filter": "size > 1000000"})
        assert changed["filter"] == "size > 1000000"
        assert await receive(stage, "/v1/queues/eu", max=10) == []
        await ask(stage, "PATCH", QUEUE, {"filter": "true"}, 400)
        await ask(stage, "DELETE", "/v1/queues/eu", status=204)

    on_stage(tmp_path, scenario, brokers)


@pytest.mark.parametrize(
    "body",
    [
        {"filter": "size > 1"},
        {"route": "a.*"},
        {"of": "orders", "filter": " "},
        {"of": "orders", "filter": "nothing == 1"},
        {"of": "orders", "filter": "size"},
        {"of": "orders", "filter": "x" * 5_000},
        {"of": "orders", "filter": "size > 1", "partitions": 3},
    ],
)
def test_wrong_filter_of_a_queue_is_refused(tmp_path: Path, body: dict[str, Any]) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(stage)
        refused = await ask(stage, "POST", "/v1/queues", {"name": "part", **body}, 400)
        assert refused["detail"]
        await ask(stage, "GET", "/v1/queues/part", status=404)

    on_stage(tmp_path, scenario)
