"""Views over HTTP: the resource, streams with a filter, and the views that they share."""

from __future__ import annotations

from pathlib import Path

from push_stage import Stage, on_stage

from penstock.cluster import views as view_rules
from penstock.filters.shared_names import shared_view_name
from support.harness import Harness
from support.whole_brokers import Brokers

ORDERS = "orders"
EVENTS = f"/v1/topics/{ORDERS}/events"
FILTER = 'value.startsWith("a")'


async def create(brokers: Brokers) -> None:
    await Harness(next(iter(brokers.running.values()))).create(ORDERS)


def test_a_view_is_created_described_changed_and_deleted(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        await stage.send(ORDERS, "a1", "b1", "a2")
        wanted = {"name": "orders.a", "of": ORDERS, "filter": FILTER}
        created = await stage.http.post("/v1/views", json=wanted)
        assert (created.status_code, created.headers["location"]) == (201, "/v1/views/orders.a")
        assert (await stage.http.get("/v1/views/orders.a")).json() == {**wanted, "shared": False}
        assert (await stage.http.get("/v1/views")).json() == {"views": [{**wanted, "shared": False}]}
        messages = (await stage.http.get("/v1/topics/orders.a/messages", params={"newest": 10})).json()
        assert sorted(each["value"] for each in messages["messages"]) == ["a1", "a2"]
        changed = await stage.http.patch("/v1/views/orders.a", json={"filter": 'value == "b1"'})
        assert changed.json()["filter"] == 'value == "b1"'
        assert (await stage.http.delete(f"/v1/topics/{ORDERS}")).status_code == 400
        assert (await stage.http.delete("/v1/views/orders.a")).status_code == 204
        assert (await stage.http.get("/v1/views/orders.a")).status_code == 404
        assert (await stage.http.get(f"/v1/views/{ORDERS}")).status_code == 404

    on_stage(tmp_path, scenario)


def test_wrong_filters_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        for text in ('size == "large"', "unknown > 1", "key ==", "json.a.all(x, x.all(y, y.all(z, z)))"):
            refused = await stage.http.post("/v1/views", json={"name": "v", "of": ORDERS, "filter": text})
            assert refused.status_code == 400, text
            tried = await stage.http.post("/v1/views/test", json={"of": ORDERS, "filter": text})
            assert tried.status_code == 400, text
            streamed = await stage.http.get(EVENTS, params={"filter": text})
            assert streamed.status_code == 400, text
        assert "column" in refused.json()["detail"] or "nested" in refused.json()["detail"]
        assert (await stage.http.get("/v1/views")).json() == {"views": []}

    on_stage(tmp_path, scenario)


def test_a_filter_is_tried_on_the_newest_messages(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        await stage.send(ORDERS, *(f"{'a' if number % 4 == 0 else 'b'}{number}" for number in range(100)))
        tried = await stage.http.post("/v1/views/test", json={"of": ORDERS, "filter": FILTER, "samples": 2})
        found = tried.json()
        assert (found["messages"], found["matched"], found["failed"]) == (100, 25, 0)
        assert len(found["samples"]) == 2
        assert all(each["value"].startswith("a") for each in found["samples"])
        assert (await stage.http.get("/v1/views")).json() == {"views": []}

    on_stage(tmp_path, scenario)


def test_streams_with_the_same_filter_share_a_view(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        await stage.send(ORDERS, "a1", "b1", "a2")
        begin = {"filter": FILTER, "from": "earliest"}
        async with stage.events(EVENTS, **begin) as events, stage.events(EVENTS, **begin) as others:
            assert await events.values(2) == ["a1", "a2"]
            await stage.send(ORDERS, "b2", "a3")
            assert await events.values(1) == ["a3"]
            assert await others.values(3) == ["a1", "a2", "a3"]
            last_id = events.last_id
        [view] = (await stage.http.get("/v1/views")).json()["views"]
        assert view["name"] == shared_view_name(ORDERS, FILTER)
        assert view["shared"]
        await stage.send(ORDERS, "b3", "a4")
        async with stage.events(EVENTS, last_id, filter=FILTER) as events:
            assert await events.values(1) == ["a4"]

    on_stage(tmp_path, scenario)


def test_a_group_acknowledges_events_of_a_filter(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        await stage.send(ORDERS, "a1", "b1", "a2")
        async with stage.events(EVENTS, group="billing", filter=FILTER) as events:
            assert await events.values(1) == ["a1"]
            path = f"/v1/groups/billing/topics/{ORDERS}/acknowledgements"
            body = {"id": events.last_id}
            assert (await stage.http.post(path, json=body, params={"filter": FILTER})).status_code == 200
        async with stage.events(EVENTS, group="billing", filter=FILTER) as events:
            assert await events.values(1) == ["a2"]

    on_stage(tmp_path, scenario)


def test_the_number_of_shared_views_of_a_topic_is_limited(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        for number in range(view_rules.MAX_SHARED_VIEWS):
            await stage.backend.views.share(ORDERS, f"offset == {number}")
        await stage.backend.views.share(ORDERS, "offset == 1")
        refused = await stage.http.get(EVENTS, params={"filter": "offset == 100000"})
        assert refused.status_code == 400
        assert "shared views" in refused.json()["detail"]

    on_stage(tmp_path, scenario)
