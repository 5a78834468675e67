"""Figures of topics, groups and brokers over HTTP: lists, one topic, history, live events, connections, logs."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from figures_stage import client, produce, serving, until, with_gateway

from support.whole_brokers import Brokers, run


def test_topics_are_searched_sorted_and_paged(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        for number in range(25):
            await http.post("/v1/topics", json={"name": f"orders-{number:02d}", "partitions": 1})
        await http.post("/v1/topics", json={"name": "payments", "partitions": 1})
        await produce(http, "orders-07", "x" * 1_000)
        names, cursor = [], None
        while True:
            asked: dict[str, str | int] = {"search": "ORD", "limit": 10}
            if cursor is not None:
                asked["cursor"] = cursor
            page = (await http.get("/v1/topics", params=asked)).json()
            assert page["total"] == 25
            names += [each["name"] for each in page["topics"]]
            cursor = page["cursor"]
            if cursor is None:
                break
        assert names == [f"orders-{number:02d}" for number in range(25)]
        largest = await until(
            http, "/v1/topics?sort=bytes&limit=1", lambda page: page["topics"][0]["bytes"] > 1_000
        )
        assert largest["topics"][0]["name"] == "orders-07"
        assert largest["topics"][0]["records"] == 1
        every = (await http.get("/v1/topics?prefix=pay")).json()
        assert [each["name"] for each in every["topics"]] == ["payments"]
        assert (await http.get("/v1/topics?cursor=nonsense")).status_code == 400

    with_gateway(tmp_path, scenario)


def test_new_topic_is_listed_at_once_and_a_deleted_one_not(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        for round_ in range(3):
            await http.post("/v1/topics", json={"name": f"t{round_}"})
            assert f"t{round_}" in [each["name"] for each in (await http.get("/v1/topics")).json()["topics"]]
            await http.delete(f"/v1/topics/t{round_}")
            assert (await http.get("/v1/topics")).json()["topics"] == []

    with_gateway(tmp_path, scenario)


def test_groups_show_their_lag_and_topics_their_groups(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        await http.post("/v1/topics", json={"name": "orders", "partitions": 1})
        await produce(http, "orders", "a", "b", "c")
        body = {"offsets": [{"topic": "orders", "partition": 0, "offset": 1}]}
        assert (await http.post("/v1/groups/billing/reset", json=body)).status_code == 200
        listed = await until(
            http, "/v1/groups?sort=lag", lambda page: page["groups"] and page["groups"][0]["lag"]
        )
        assert listed["groups"][0] == {
            "id": "billing",
            "type": "classic",
            "state": "Empty",
            "members": 0,
            "topics": 1,
            "lag": 2,
        }
        of_topic = (await http.get("/v1/topics/orders/groups")).json()["groups"]
        assert [(each["id"], each["lag"]) for each in of_topic] == [("billing", 2)]
        assert (await http.get("/v1/groups?state=stable")).json()["groups"] == []
        await http.delete("/v1/groups/billing")
        await until(http, "/v1/groups", lambda page: page["groups"] == [])

    with_gateway(tmp_path, scenario, offsets_topic_num_partitions="2")


def test_partitions_have_sizes_and_times(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        await http.post("/v1/topics", json={"name": "t", "partitions": 2})
        for time_ms in (1_700_000_000_000, 1_700_000_005_000):
            message = {"value": "x", "partition": 0, "timestamp_ms": time_ms}
            await http.post("/v1/topics/t/messages", json={"messages": [message]})
        first, second = (await http.get("/v1/topics/t")).json()["partitions"]
        assert first["bytes"] > 0
        assert first["first_time_ms"] == 1_700_000_000_000
        assert first["last_time_ms"] == 1_700_000_005_000
        assert (second["bytes"], second["first_time_ms"], second["last_time_ms"]) == (0, None, None)

    with_gateway(tmp_path, scenario)


@pytest.mark.slow
def test_history_and_live_events_show_written_records(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        await http.post("/v1/topics", json={"name": "t", "partitions": 1})
        await until(http, "/v1/overview", lambda overview: overview["topics"] == 1)
        await produce(http, "t", *"abcdefghij")
        series = "/v1/history?series=topic:t:records,cluster:cluster:records,group:none:lag"
        found = await until(
            http, series, lambda page: any(value for value in page["series"].get("topic:t:records", []))
        )
        assert found["step_ms"] == 2_000
        assert len(found["series"]["cluster:cluster:records"]) == 300
        assert "group:none:lag" not in found["series"]
        assert (await http.get("/v1/history?series=nonsense")).status_code == 400
        async with http.stream("GET", "/v1/live?topics=t,missing&overview=true") as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    event = json.loads(line[6:])
                    break
        assert [each["name"] for each in event["topics"]] == ["t"]
        assert event["topics"][0]["records"] == 10
        assert event["overview"]["status"] == "ok"

    with_gateway(tmp_path, scenario)


def test_connections_are_listed_and_closed(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        found = (await http.get("/v1/connections")).json()
        assert found["total"] == len(found["connections"]) > 0
        own = found["connections"][0]
        assert own["client_id"] == "penstock-gateway"
        assert own["principal"] == "User:ANONYMOUS"
        assert (await http.delete(f"/v1/connections/{own['id']}")).status_code == 204
        assert (await http.delete("/v1/connections/9-1")).status_code == 404
        assert (await http.delete("/v1/connections/x")).status_code == 400
        await until(http, "/v1/connections", lambda page: own["id"] not in str(page))

    with_gateway(tmp_path, scenario)


def test_log_lines_and_reassignments_are_shown(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        lines = (await http.get("/v1/brokers/1/log?limit=50")).json()["lines"]
        assert "serving" in [each["message"] for each in lines]
        assert (await http.get("/v1/brokers/7/log")).status_code == 404
        assert (await http.get("/v1/cluster/reassignments")).json() == {"reassignments": []}

    with_gateway(tmp_path, scenario)


def test_every_gateway_of_a_cluster_shows_the_figures_of_all_brokers(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        for number in (1, 2, 3):
            await brokers.start(number)
        for number in (1, 2, 3):
            await serving(brokers, number)
        async with client(brokers, 1) as http:
            await http.post("/v1/topics", json={"name": "t", "partitions": 6, "replication_factor": 1})
            for partition in range(6):
                await produce(http, "t", "value", partition=partition)
        for number in (1, 2, 3):
            async with client(brokers, number) as http:
                await until(http, "/v1/topics?search=t", lambda page: page["topics"][0]["records"] == 6)
        await brokers.stop(3)
        async with client(brokers, 1) as http:
            found = await until(
                http,
                "/v1/overview",
                lambda overview: overview["without_leader"] == 2 and overview["problems"],
            )
            assert found["status"] == "failing"
            assert "partitions of t have no leader" in found["problems"][0]["text"]
            assert found["problems"][0]["since_ms"] > 1_600_000_000_000
            assert (await http.get("/v1/topics?search=t")).json()["topics"][0]["health"] == "failing"

    run(tmp_path, scenario, http_port="0", durability="os")
