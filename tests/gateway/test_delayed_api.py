"""Delayed messages over HTTP: send, list, show and cancel, and messages to users."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from served import client_of, serving

from support.broker_process import BrokerProcess
from support.eventually import eventually

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def broker(starts_processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with serving(tmp_path_factory.mktemp("delayed"), ("durability=os",)) as process:
        yield process


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with client_of(broker) as client:
        yield client


@pytest.fixture
def topic(http: httpx.Client, topic_name: str) -> str:
    body = {"name": topic_name, "partitions": 2, "configs": {"delivery.delay": "true"}}
    assert http.post("/v1/topics", json=body).status_code == 201
    return topic_name


def send(http: httpx.Client, topic: str, *messages: dict[str, object]) -> httpx.Response:
    return http.post(f"/v1/topics/{topic}/messages", json={"messages": list(messages)})


def values(http: httpx.Client, topic: str) -> list[str]:
    return [each["value"] for each in http.get(f"/v1/topics/{topic}/messages").json()["messages"]]


def test_delayed_messages_are_listed_by_due_time_page_by_page(http: httpx.Client, topic: str) -> None:
    messages = [
        {"value": str(place), "partition": place % 2, "delay_ms": HOUR_MS * (10 - place)}
        for place in range(6)
    ]
    assert send(http, topic, *messages).status_code == 200
    page = http.get(f"/v1/topics/{topic}/delayed", params={"limit": 4}).json()
    rest = http.get(f"/v1/topics/{topic}/delayed", params={"limit": 4, "after": page["next"]}).json()
    assert page["count"] == rest["count"] == 6
    assert "next" not in rest
    found = page["messages"] + rest["messages"]
    assert [each["due_ms"] for each in found] == sorted(each["due_ms"] for each in found)
    shown = [http.get(f"/v1/topics/{topic}/delayed/{each['id']}").json() for each in found]
    assert [each["message"]["value"] for each in shown] == ["5", "4", "3", "2", "1", "0"]
    only = http.get(f"/v1/topics/{topic}/delayed", params={"partition": 1}).json()
    assert only["count"] == 3
    assert values(http, topic) == []


def test_a_cancelled_message_never_comes(http: httpx.Client, topic: str) -> None:
    sent = send(http, topic, {"value": "no", "partition": 0, "delay_ms": HOUR_MS}).json()["messages"][0]
    place = f"/v1/topics/{topic}/delayed/{sent['partition']}-{sent['offset']}"
    assert http.delete(place).status_code == 204
    again = http.delete(place)
    assert again.status_code == 409
    assert "not pending" in again.json()["detail"]
    assert http.get(place).status_code == 404
    assert http.get(f"/v1/topics/{topic}/delayed").json()["count"] == 0


def test_messages_come_when_they_are_due(http: httpx.Client, topic: str) -> None:
    send(http, topic, {"value": "past", "deliver_at": "2001-01-01T00:00:00Z", "partition": 0})
    send(http, topic, {"value": "soon", "delay_ms": 50, "partition": 0})
    eventually(lambda: values(http, topic) == ["past", "soon"], details=lambda: values(http, topic))


@pytest.mark.parametrize(
    "message",
    [
        {"value": "x", "delay_ms": 1, "deliver_at": "2001-01-01T00:00:00Z"},
        {"value": "x", "deliver_at": "2001-01-01T00:00:00"},
        {"value": "x", "deliver_at": "soon"},
        {"value": "x", "delay_ms": -1},
        {"value": "x", "delay_ms": 40_000_000_000},
        {"value": "x", "headers": {"penstock-delay-ms": "soon"}},
    ],
)
def test_refuses_delays_that_are_not_valid(
    http: httpx.Client, topic: str, message: dict[str, object]
) -> None:
    refused = send(http, topic, message)
    assert refused.status_code in (400, 422), refused.text
    assert refused.json()["detail"]


def test_refuses_delays_where_they_would_be_ignored(http: httpx.Client, topic_name: str) -> None:
    assert http.post("/v1/topics", json={"name": topic_name, "partitions": 1}).status_code == 201
    ignored: list[dict[str, object]] = [
        {"value": "x", "delay_ms": 1},
        {"value": "x", "headers": {"penstock-delay-ms": "1"}},
    ]
    for message in ignored:
        refused = send(http, topic_name, message)
        assert refused.status_code == 400
        assert "delivery.delay" in refused.json()["detail"]
    assert http.get(f"/v1/topics/{topic_name}/delayed").status_code == 400
    assert http.delete(f"/v1/topics/{topic_name}/delayed/0-0").status_code == 400


def test_users_receive_delayed_messages_when_they_are_due(http: httpx.Client) -> None:
    early = {"from_user": "ann", "to_user": "bob", "message": "before there is a mailbox", "delay_ms": 1}
    refused = http.post("/send", json=early)
    assert refused.status_code == 400
    assert "penstock topic create mailbox --set delivery.delay=true" in refused.json()["detail"]
    configs = {"delivery.delay": "true", "index.by.key": "true"}
    assert (
        http.post("/v1/topics", json={"name": "mailbox", "partitions": 3, "configs": configs}).status_code
        == 201
    )
    body = {"from_user": "ann", "to_user": "bob", "message": "later"}
    assert http.post("/send", json={**body, "delay_ms": HOUR_MS}).status_code == 200
    assert http.post("/send", json={**body, "message": "soon", "delay_ms": 50}).status_code == 200
    assert http.post("/send", json={**body, "message": "now"}).status_code == 200
    received = eventually(lambda: _received(http, 2), "both messages come")
    assert received == ["now", "soon"]


def _received(http: httpx.Client, count: int) -> list[str]:
    messages = http.get("/receive", params={"user_id": "bob"}).json()["messages"]
    found = [each["message"] for each in messages]
    return found if len(found) >= count else []


def test_expired_messages_are_left_out(http: httpx.Client, topic_name: str) -> None:
    configs = {"index.by.key": "true"}
    assert (
        http.post("/v1/topics", json={"name": topic_name, "partitions": 1, "configs": configs}).status_code
        == 201
    )
    over, good = {"penstock-ttl-ms": "0"}, {"penstock-expires-at": "2100-01-01T00:00:00Z"}
    sent = send(
        http,
        topic_name,
        {"key": "k", "value": "over", "headers": over},
        {"key": "k", "value": "good", "headers": good},
    )
    assert sent.status_code == 200
    assert values(http, topic_name) == ["good"]
    by_key = http.get(f"/v1/topics/{topic_name}/messages", params={"key": "k"}).json()["messages"]
    assert [each["value"] for each in by_key] == ["good"]


def test_search_leaves_expired_messages_out(http: httpx.Client, topic_name: str) -> None:
    assert http.post("/v1/topics", json={"name": topic_name, "partitions": 1}).status_code == 201
    over: dict[str, object] = {"value": "old", "headers": {"penstock-ttl-ms": "0"}}
    assert send(http, topic_name, over, {"value": "good old days"}).status_code == 200
    found = http.post(f"/v1/topics/{topic_name}/search", json={"text": "old"}).text
    assert "good old days" in found
    assert '"old"' not in found


def test_a_truncation_tells_how_many_pending_messages_it_removed(http: httpx.Client, topic: str) -> None:
    later: dict[str, object] = {"value": "later", "partition": 0, "delay_ms": HOUR_MS}
    assert send(http, topic, later, later).status_code == 200
    body = {"partitions": [{"partition": 0, "offset": 1}]}
    truncated = http.post(f"/v1/topics/{topic}/truncate", json=body).json()
    assert truncated == {"partitions": [{"partition": 0, "log_start_offset": 1, "removed_pending": 1}]}
    assert http.get(f"/v1/topics/{topic}/delayed").json()["count"] == 1
