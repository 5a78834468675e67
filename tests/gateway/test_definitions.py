"""Definitions of a cluster as one document: exported, compared, applied."""

from __future__ import annotations

from pathlib import Path

import httpx
from figures_stage import produce, with_gateway

from penstock.internal_client.definitions import DefinedTopic, Definitions, plan

PRESENT = Definitions(
    {
        "a": DefinedTopic("a", 3, 1, {"retention.ms": "1", "segment.bytes": "2000"}),
        "b": DefinedTopic("b", 1, 1),
    },
    {"log.retention.ms": "5"},
)


def test_plan_of_the_present_document_is_empty() -> None:
    assert plan(PRESENT, PRESENT, prune=True) == []
    assert Definitions.read(PRESENT.document()) == PRESENT


def test_plan_changes_only_what_differs() -> None:
    wanted = Definitions(
        {
            "a": DefinedTopic("a", 4, 2, {"retention.ms": "7"}),
            "b": DefinedTopic("b", -1, -1),
            "c": DefinedTopic("c", -1, -1),
        }
    )
    steps = plan(PRESENT, wanted)
    assert [(step.action, step.topic) for step in steps] == [
        ("add_partitions", "a"),
        ("differs", "a"),
        ("configure", "a"),
        ("create", "c"),
    ]
    assert steps[2].changes == {"retention.ms": "7"}


def test_prune_removes_what_the_document_does_not_name() -> None:
    steps = plan(PRESENT, Definitions({"a": DefinedTopic("a", 2, 1)}), prune=True)
    assert [(step.action, step.topic, step.changes) for step in steps] == [
        ("differs", "a", {}),
        ("configure", "a", {"retention.ms": None, "segment.bytes": None}),
        ("configure_brokers", "", {"log.retention.ms": None}),
        ("delete", "b", {}),
    ]


def test_views_are_created_after_their_sources_and_deleted_before() -> None:
    filtered = {"view.of": "orders", "view.filter": "true"}
    present = Definitions(
        {"all": DefinedTopic("all", 3, 1, filtered), "orders": DefinedTopic("orders", 3, 1)}
    )
    created = plan(Definitions({}), present)
    assert [(step.action, step.topic) for step in created] == [("create", "orders"), ("create", "all")]
    deleted = plan(present, Definitions({}), prune=True)
    assert [(step.action, step.topic) for step in deleted] == [("delete", "all"), ("delete", "orders")]


def test_a_view_has_the_partitions_of_its_source() -> None:
    filtered = {"view.of": "orders", "view.filter": "true"}
    present = Definitions({"all": DefinedTopic("all", 3, 1, filtered)})
    wanted = Definitions({"all": DefinedTopic("all", 6, 2, {**filtered, "view.filter": "false"})})
    [step] = plan(present, wanted)
    assert (step.action, step.changes) == ("configure", {"view.filter": "false"})


def test_views_are_applied_with_their_sources(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        view = {"name": "a-view", "partitions": 2, "configs": {"view.of": "orders", "view.filter": "true"}}
        document = {"format": 1, "topics": [view, {"name": "orders", "partitions": 2}]}
        done = (await http.put("/v1/definitions", json=document)).json()
        assert [step["topic"] for step in done["steps"]] == ["orders", "a-view"]
        assert (await http.get("/v1/views/a-view")).json()["of"] == "orders"
        assert (await http.put("/v1/definitions", json=document)).json()["steps"] == []

    with_gateway(tmp_path, scenario)


def test_document_of_one_cluster_creates_the_topics_of_another(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        await http.post(
            "/v1/topics", json={"name": "a", "partitions": 2, "configs": {"retention.ms": "5000"}}
        )
        await produce(http, "a", "x")
        document = (await http.get("/v1/definitions")).json()
        assert document == {
            "format": 1,
            "topics": [
                {"name": "a", "partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "5000"}}
            ],
            "brokers": {},
        }
        document["topics"].append({"name": "b", "partitions": 3})
        dry = (await http.put("/v1/definitions?dry_run=true", json=document)).json()
        assert [step["action"] for step in dry["steps"]] == ["create"]
        assert (await http.get("/v1/topics/b")).status_code == 404
        assert (await http.put("/v1/definitions", json=document)).json()["steps"] == dry["steps"]
        assert len((await http.get("/v1/topics/b")).json()["partitions"]) == 3
        assert (await http.put("/v1/definitions", json=document)).json()["steps"] == []
        pruned = {"format": 1, "topics": [{"name": "b"}]}
        done = (await http.put("/v1/definitions?prune=true", json=pruned)).json()
        assert [(step["action"], step["topic"]) for step in done["steps"]] == [("delete", "a")]
        assert (await http.put("/v1/definitions", json={"format": 2, "topics": []})).status_code == 400

    with_gateway(tmp_path, scenario)
