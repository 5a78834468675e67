"""Definitions of a cluster as one document: exported, compared, applied."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from figures_stage import produce, with_gateway

from penstock.internal_client.definitions.planning import (
    SECTIONS,
    Definitions,
    InvalidDefinition,
    document,
    plan,
    read_document,
)

DELAYED = {"delivery.delay": "true", "message.timestamp.type": "LogAppendTime"}
SETTINGS = {"authorization_mode": "report", "webhook_allow_private_addresses": "127.0.0.0/8"}
PRESENT: dict[str, Any] = {
    "format": 1,
    "topics": [
        {
            "name": "a",
            "partitions": 3,
            "replication_factor": 1,
            "configs": {"retention.ms": "1", "segment.bytes": "2000"},
        },
        {"name": "b", "partitions": 1, "replication_factor": 1, "configs": {}},
    ],
    "brokers": {"log.retention.ms": "5"},
}
FULL: dict[str, Any] = {
    "format": 1,
    "users": [
        {"name": "ann", "disabled": False, "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]},
        {"name": "bob", "disabled": True, "mechanisms": ["SCRAM-SHA-512"]},
    ],
    "acls": [
        {
            "principal": "User:ann",
            "operation": "READ",
            "resource_type": "TOPIC",
            "name": "orders",
            "pattern": "PREFIXED",
            "host": "*",
            "permission": "ALLOW",
        }
    ],
    "quotas": [
        {"entity": {"ip": "10.0.0.1"}, "values": {"connection_creation_rate": 5.0}},
        {"entity": {"user": "ann", "client_id": None}, "values": {"producer_byte_rate": 1000.0}},
    ],
    "brokers": {"log.retention.ms": "86400000"},
    "topics": [
        {"name": "billing.dead", "partitions": 2, "replication_factor": 1, "configs": {}},
        {
            "name": "billing.retry",
            "partitions": 2,
            "replication_factor": 1,
            "configs": DELAYED,
        },
        {"name": "jobs", "partitions": 1, "replication_factor": 1, "configs": DELAYED},
        {"name": "jobs-dead", "partitions": 1, "replication_factor": 1, "configs": {}},
        {"name": "orders", "partitions": 3, "replication_factor": 1, "configs": {"retention.ms": "5000"}},
        {"name": "webhook-shop-dead", "partitions": 3, "replication_factor": 1, "configs": {}},
    ],
    "views": [{"name": "eu-orders", "of": "orders", "filter": 'headers.region == "eu"'}],
    "groups": [{"name": "readers", "configs": {"consumer.session.timeout.ms": "50000"}}],
    "retry_policies": [
        {"group": "billing", "max_attempts": 3, "back_off": "1s,10s", "dead_letter": "billing.dead"}
    ],
    "queues": [
        {"name": "jobs", "lock_s": 60, "max_attempts": 9, "dead_letter": "jobs-dead"},
        {"name": "large", "of": "orders", "filter": "size(value) > 100"},
        {"name": "plain", "of": "orders", "lock_s": 1.5},
        {
            "name": "webhook-shop",
            "of": "orders",
            "filter": "true",
            "max_attempts": 7,
            "dead_letter": "webhook-shop-dead",
        },
    ],
    "webhooks": [
        {
            "name": "audit",
            "url": "http://127.0.0.1:9/audit",
            "queue": "plain",
            "concurrency": 2,
            "timeout_s": 1.5,
            "format": "cloudevent",
            "paused": True,
        },
        {
            "name": "shop",
            "url": "http://127.0.0.1:9/shop",
            "topic": "orders",
            "filter": "true",
            "concurrency": 8,
            "timeout_s": 10.0,
            "format": "raw",
            "paused": True,
        },
    ],
    "schedules": [
        {
            "name": "nightly",
            "cron": "0 3 * * *",
            "timezone": "Europe/Berlin",
            "topic": "jobs",
            "catch_up": "all",
            "paused": True,
            "key": "k",
            "value_base64": "/w==",
            "headers": [{"name": "h", "value": "v"}],
        }
    ],
    "pipelines": [
        {
            "name": "archive",
            "definition": {"source": {"topics": ["orders"]}, "target": {"topic": "jobs"}},
            "paused": True,
        }
    ],
}


CHANGED: dict[str, Any] = {
    "format": 1,
    "users": [{"name": "bob", "disabled": False}],
    "quotas": [{"entity": {"ip": "10.0.0.1"}, "values": {"connection_creation_rate": 6}}],
    "views": [{"name": "eu-orders", "of": "orders", "filter": "true"}],
    "queues": [{"name": "jobs", "lock_s": 5}, {"name": "large", "of": "orders", "filter": "false"}],
    "retry_policies": [{"group": "billing", "max_attempts": 8}],
    "schedules": [{"name": "nightly", "cron": "@daily", "topic": "jobs"}],
    "webhooks": [
        {
            "name": "audit",
            "queue": "plain",
            "url": "http://127.0.0.1:9/other",
            "timeout_s": 2.5,
            "paused": False,
        },
        {"name": "shop", "queue": "plain", "url": "http://127.0.0.1:9/shop"},
    ],
    "pipelines": [{**FULL["pipelines"][0], "paused": False}],
}


def read(given: dict[str, Any]) -> Definitions:
    return read_document({"format": 1, **given})


def actions(present: dict[str, Any], wanted: dict[str, Any], prune: bool = False) -> list[tuple[str, str]]:
    return [(step.action, step.name) for step in plan(read(present), read(wanted), prune=prune)]


@pytest.mark.parametrize("given", [PRESENT, FULL], ids=["topics", "everything"])
def test_plan_of_the_present_document_is_empty(given: dict[str, Any]) -> None:
    assert plan(read(given), read(given), prune=True) == []
    assert read_document(document(read(given))) == read(given)


def test_plan_changes_only_what_differs() -> None:
    wanted = {
        "topics": [
            {"name": "a", "partitions": 4, "replication_factor": 2, "configs": {"retention.ms": "7"}},
            {"name": "b"},
            {"name": "c"},
        ]
    }
    assert actions(PRESENT, wanted) == [("differs", "a"), ("change", "a"), ("create", "c")]
    step = plan(read(PRESENT), read(wanted))[1]
    assert {name: change.new for name, change in step.changes.items()} == {
        "partitions": 4,
        "retention.ms": "7",
    }
    assert step.text == "change topic a: partitions from 3 to 4, retention.ms from 1 to 7"


def test_prune_removes_entries_that_a_section_does_not_name() -> None:
    wanted = {"topics": [{"name": "a", "partitions": 2, "replication_factor": 1}], "brokers": {}}
    steps = plan(read(PRESENT), read(wanted), prune=True)
    assert [(step.action, step.section, step.name) for step in steps] == [
        ("change", "brokers", ""),
        ("differs", "topics", "a"),
        ("change", "topics", "a"),
        ("delete", "topics", "b"),
    ]
    assert {name: change.new for name, change in steps[2].changes.items()} == {
        "retention.ms": None,
        "segment.bytes": None,
    }


def test_prune_leaves_sections_that_the_document_does_not_have() -> None:
    assert plan(read(FULL), read({"quotas": FULL["quotas"]}), prune=True) == []


def test_entries_are_created_after_and_deleted_before_those_that_they_need() -> None:
    empty: dict[str, Any] = {name: {} if name == "brokers" else [] for name in SECTIONS}
    created = actions({}, FULL)
    assert created.index(("create", "orders")) < created.index(("create", "eu-orders"))
    assert created.index(("create", "plain")) < created.index(("create", "audit"))
    # The webhook of a topic creates its queue, which gets its settings afterwards.
    assert created.index(("create", "shop")) < created.index(("create", "webhook-shop"))
    deleted = actions(FULL, empty, prune=True)
    assert deleted.index(("delete", "audit")) < deleted.index(("delete", "plain"))
    assert deleted.index(("delete", "eu-orders")) < deleted.index(("delete", "orders"))


def test_views_and_retry_policies_may_be_written_as_topics() -> None:
    filtered = {"view.of": "orders", "view.filter": "true"}
    policy = {"retry.group": "g", "retry.max.attempts": "3", "delivery.delay": "true"}
    found = read({"topics": [{"name": "all", "configs": filtered}, {"name": "g.retry", "configs": policy}]})
    assert found["views"] == [{"name": "all", "of": "orders", "filter": "true"}]
    assert found["topics"] == [{"name": "g.retry", "configs": DELAYED}]
    [stored] = found["retry_policies"]
    assert (stored["group"], stored["max_attempts"]) == ("g", 3)


@pytest.mark.parametrize(
    ("section", "entry", "text"),
    [
        ("topics", {"name": "a"}, "topic a: the document names it twice"),
        ("views", {"name": "v", "of": "a", "filter": "size("}, "view v: filter: "),
        ("queues", {"name": "q", "back_off": "soon"}, "queue q: back_off: "),
        ("queues", {"name": "q", "filter": "true"}, "queue q: a filter needs `of`"),
        ("webhooks", {"name": "w", "url": "http://a"}, "webhook w: a webhook needs a queue or a topic"),
        ("quotas", {"entity": {}, "values": {}}, "quotas of: entity: give a user"),
        ("pipelines", {"name": "p", "definition": {}}, "pipeline p: "),
        (
            "schedules",
            {"name": "s", "cron": "@daily", "topic": "a", "value": "x", "value_base64": ""},
            "schedule s: ",
        ),
        (
            "acls",
            {"principal": "User:a", "operation": "CREATE", "resource_type": "GROUP", "name": "g"},
            "CREATE is not an operation of GROUP",
        ),
    ],
)
def test_wrong_entries_are_named(section: str, entry: dict[str, Any], text: str) -> None:
    entries = [entry, entry] if section == "topics" else [entry]
    with pytest.raises(InvalidDefinition) as refused:
        read({section: entries})
    assert text in str(refused.value)
    assert refused.value.pointer == f"/{section}/{len(entries) - 1}"


def test_a_document_makes_an_empty_cluster_the_same(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        answer = await http.put("/v1/definitions", json=FULL)
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["steps"]) == sum(len(FULL[name]) for name in SECTIONS)
        exported = (await http.get("/v1/definitions")).json()
        assert exported == FULL
        again = (await http.put("/v1/definitions?prune=true", json=exported)).json()
        assert again["steps"] == []
        queue = (await http.get("/v1/queues/webhook-shop")).json()
        assert (queue["max_attempts"], queue["of"]) == (7, "orders")

        less: dict[str, Any] = {name: [] for name in SECTIONS if name != "brokers"}
        pruned = await http.put("/v1/definitions?prune=true", json={"format": 1, **less, "brokers": {}})
        assert pruned.status_code == 200, pruned.text
        bare = (await http.get("/v1/definitions")).json()
        assert bare == {"format": 1, **less, "brokers": {}}

    with_gateway(tmp_path, scenario, **SETTINGS)


def test_changed_entries_are_changed(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        assert (await http.put("/v1/definitions", json=FULL)).status_code == 200
        done = (await http.put("/v1/definitions", json=CHANGED)).json()["steps"]
        assert {(step["action"], step["name"]) for step in done} == {
            ("change", "bob"),
            ("change", "ip 10.0.0.1"),
            ("change", "eu-orders"),
            ("change", "jobs"),
            ("change", "large"),
            ("change", "billing"),
            ("change", "nightly"),
            ("differs", "shop"),
            ("change", "audit"),
            ("change", "archive"),
        }
        [lock] = [step for step in done if step["name"] == "jobs"]
        assert lock["changes"] == {"lock_s": {"from": 60, "to": 5}}
        left = (await http.put("/v1/definitions?dry_run=true", json=CHANGED)).json()["steps"]
        assert [step["action"] for step in left] == ["differs"]
        webhook = (await http.get("/v1/webhooks/audit")).json()
        assert (webhook["url"], webhook["timeout_s"]) == ("http://127.0.0.1:9/other", 2.5)
        schedule = (await http.get("/v1/schedules/nightly")).json()
        assert (schedule["cron"], schedule["paused"]) == ("@daily", True)

    with_gateway(tmp_path, scenario, **SETTINGS)


def test_a_refused_step_names_its_entry_and_the_steps_before_it_stay(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        topics = [{"name": "good"}, {"name": "large", "replication_factor": 9}]
        answer = await http.put("/v1/definitions", json={"format": 1, "topics": topics})
        assert answer.status_code == 400
        assert answer.json()["detail"].startswith("create topic large: ")
        assert "(step 2 of 2)" in answer.json()["detail"]
        assert (await http.get("/v1/topics/good")).status_code == 200
        wrong = await http.put(
            "/v1/definitions", json={"format": 1, "queues": [{"name": "q", "lock_s": "x"}]}
        )
        assert (wrong.status_code, wrong.json()["pointer"]) == (400, "/queues/0/lock_s")

    with_gateway(tmp_path, scenario, **SETTINGS)


def test_dry_run_asks_a_broker_whether_new_topics_are_accepted(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        topics = [
            {"name": "good"},
            {"name": "large", "replication_factor": 9},
            {"name": "wrong", "configs": {"retention.ms": "soon"}},
        ]
        answer = await http.put("/v1/definitions?dry_run=true", json={"format": 1, "topics": topics})
        assert answer.status_code == 200, answer.text
        problems = {step["name"]: step["problem"] for step in answer.json()["steps"]}
        assert problems["good"] == ""
        assert "replication factor" in problems["large"].lower(), problems
        assert "retention.ms" in problems["wrong"], problems
        assert (await http.get("/v1/topics/good")).status_code == 404

    with_gateway(tmp_path, scenario)


@pytest.mark.slow
def test_document_may_be_larger_than_other_bodies(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        rules = [
            {**FULL["acls"][0], "name": f"topic-{number:05d}-{'x' * 100}", "pattern": "LITERAL"}
            for number in range(6_000)
        ]
        answer = await http.put("/v1/definitions", json={"format": 1, "acls": rules})
        assert len(answer.request.content) > 1_300_000
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["steps"]) == len(rules)
        assert len((await http.get("/v1/definitions")).json()["acls"]) == len(rules)
        pruned = await http.put("/v1/definitions?prune=true", json={"format": 1, "acls": rules[:10]})
        assert len(pruned.json()["steps"]) == len(rules) - 10
        assert len((await http.get("/v1/definitions")).json()["acls"]) == 10

    with_gateway(tmp_path, scenario, authorization_mode="report")


def test_export_has_only_what_was_set_on_a_topic_itself(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        await http.post("/v1/topics", json={"name": "a", "configs": {"retention.bytes": "7"}})
        changed = await http.patch("/v1/brokers/1/configs", json={"log.retention.ms": "5000"})
        assert changed.status_code < 300, changed.text
        [topic] = (await http.get("/v1/definitions")).json()["topics"]
        assert topic["configs"] == {"retention.bytes": "7"}

    with_gateway(tmp_path, scenario)


def test_dry_run_changes_nothing(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        await http.post("/v1/topics", json={"name": "a", "partitions": 2})
        await produce(http, "a", "x")
        document = (await http.get("/v1/definitions")).json()
        document["topics"].append({"name": "b", "partitions": 3})
        dry = (await http.put("/v1/definitions?dry_run=true", json=document)).json()
        assert [step["action"] for step in dry["steps"]] == ["create"]
        assert (await http.get("/v1/topics/b")).status_code == 404
        assert (await http.put("/v1/definitions", json=document)).json()["steps"] == dry["steps"]
        assert len((await http.get("/v1/topics/b")).json()["partitions"]) == 3
        assert (await http.put("/v1/definitions", json={"format": 2, "topics": []})).status_code == 400

    with_gateway(tmp_path, scenario, **SETTINGS)


def test_two_documents_at_a_time_end_with_the_same_definitions(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        wanted = {name: FULL[name] for name in ("format", "users", "acls", "quotas", "brokers")}
        answers = await asyncio.gather(*(http.put("/v1/definitions", json=wanted) for _ in range(3)))
        assert [answer.status_code for answer in answers] == [200] * 3, answers[0].text
        exported = (await http.get("/v1/definitions")).json()
        assert {name: exported[name] for name in wanted} == wanted

    with_gateway(tmp_path, scenario, **SETTINGS)
