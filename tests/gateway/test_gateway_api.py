"""The gateway inside a broker, used like a user does: resources, messages to users, errors."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from served import client_of, serving

from support.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def broker(starts_processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = (
        "durability=os",
        "gateway.allowed.origins=https://app.example",
        "offsets.topic.num.partitions=2",
    )
    with serving(tmp_path_factory.mktemp("gateway"), settings) as process:
        yield process


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with client_of(broker) as client:
        yield client


@pytest.fixture
def topic(http: httpx.Client, topic_name: str) -> str:
    made = http.post("/v1/topics", json={"name": topic_name, "partitions": 3})
    assert made.status_code == 201, made.text
    assert made.headers["location"] == f"/v1/topics/{topic_name}"
    return topic_name


# --- messages to users


def test_send_and_receive_work_with_curl(broker: BrokerProcess) -> None:
    base = f"http://127.0.0.1:{broker.http_port}"
    as_json = ["-H", "content-type: application/json", "-d"]
    body = '{"from_user": "ann", "to_user": "curly", "message": "hello \u00e4\u20ac"}'
    sent = json.loads(curl(f"{base}/send", *as_json, body))
    assert set(sent) == {"status", "message_id"}
    assert sent["status"] == "success"
    received = json.loads(curl("-X", "GET", f"{base}/receive", *as_json, '{"user_id": "curly"}'))
    [message] = received["messages"]
    assert set(message) == {"message_id", "from_user", "to_user", "message", "timestamp"}
    assert message["message_id"] == sent["message_id"]
    assert message["message"] == "hello \u00e4\u20ac"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", message["timestamp"])
    datetime.fromisoformat(message["timestamp"])
    later = curl(
        "-G", f"{base}/receive", "-d", "user_id=curly", "-d", f"last_message_id={sent['message_id']}"
    )
    assert json.loads(later) == {"messages": []}


def curl(*arguments: str) -> str:
    return subprocess.run(
        ["curl", "-sS", *arguments], check=True, capture_output=True, timeout=30
    ).stdout.decode()


def send(http: httpx.Client, user: str, message: str, **headers: str) -> str:
    body = {"from_user": "ann", "to_user": user, "message": message}
    answer = http.post(
        "/send", json=body, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    assert answer.status_code == 200, answer.text
    return str(answer.json()["message_id"])


def test_pages_follow_each_other(http: httpx.Client, topic_name: str) -> None:
    sent = [send(http, topic_name, str(number)) for number in range(7)]
    seen: list[str] = []
    parameters = {"user_id": topic_name, "limit": "3"}
    while found := http.get("/receive", params=parameters).json()["messages"]:
        seen += [message["message_id"] for message in found]
        parameters["last_message_id"] = seen[-1]
    assert seen == sent == sorted(sent)


def test_long_poll_returns_when_message_arrives(
    http: httpx.Client, broker: BrokerProcess, topic_name: str
) -> None:
    found: list[httpx.Response] = []

    def receive() -> None:
        with client_of(broker) as other:
            found.append(other.get("/receive", params={"user_id": topic_name, "wait": "20"}))

    waiting = threading.Thread(target=receive)
    waiting.start()
    sent = send(http, topic_name, "now")
    waiting.join(10)
    assert [message["message_id"] for message in found[0].json()["messages"]] == [sent]


def test_null_empty_and_absent_parameters_of_receive_mean_the_same(
    http: httpx.Client, topic_name: str
) -> None:
    sent = send(http, topic_name, "hello")
    bodies: list[dict[str, Any]] = [
        {},
        {"last_message_id": None, "limit": None, "wait": None},
        {"last_message_id": "", "limit": "", "wait": ""},
    ]
    for body in bodies:
        for answer in (
            http.post("/receive", json={"user_id": topic_name, **body}),
            http.get("/receive", params={"user_id": topic_name, **body}),
            http.get("/receive", params={"user_id": topic_name, "limit": ""}),
        ):
            assert [each["message_id"] for each in answer.json()["messages"]] == [sent], answer.text
    assert http.get("/receive", params={"user_id": ""}).status_code == 400
    empty_key = http.post(
        "/send",
        json={"from_user": "a", "to_user": topic_name, "message": "m"},
        headers={"idempotency-key": ""},
    )
    assert empty_key.status_code == 400, "an idempotency key that was not filled in is noticed"


def test_send_and_receive_take_json_without_content_type(http: httpx.Client, topic_name: str) -> None:
    body = json.dumps({"from_user": "ann", "to_user": topic_name, "message": "bare"}).encode()
    assert http.post("/send", content=body).status_code == 200
    found = http.post("/receive", content=json.dumps({"user_id": topic_name}).encode())
    assert [each["message"] for each in found.json()["messages"]] == ["bare"]
    assert http.post("/v1/topics", content=b'{"name": "bare"}').status_code == 415


def test_null_beside_a_value_is_the_same_as_absent(http: httpx.Client, topic: str) -> None:
    messages = [
        {"key": None, "key_base64": "a2V5", "value": None, "value_base64": "dGV4dA==", "partition": 0},
        {"value": "text", "value_base64": None, "headers": None, "timestamp_ms": None, "partition": 0},
    ]
    stored = http.post(f"/v1/topics/{topic}/messages", json={"messages": messages})
    assert stored.status_code == 200, stored.text
    found = http.get(f"/v1/topics/{topic}/messages", params={"partition": 0, "offset": ""}).json()["messages"]
    assert [(each["key"], each["value"]) for each in found] == [("key", "text"), (None, "text")]


def test_long_poll_ends_after_its_wait(http: httpx.Client, topic_name: str) -> None:
    answer = http.get("/receive", params={"user_id": topic_name, "wait": "0.2"})
    assert answer.json() == {"messages": []}
    assert answer.elapsed.total_seconds() < 5


@pytest.mark.usefixtures("starts_processes")
def test_idempotency_key_stores_once_across_a_crash(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with serving(tmp_path_factory.mktemp("crash")) as process:
        with client_of(process) as http:
            first = send(http, "dave", "pay", Idempotency_Key="order-1")
            assert send(http, "dave", "pay", Idempotency_Key="order-1") == first
            other = send(http, "dave", "pay", Idempotency_Key="order-2")
        process.kill()
        process.start()
        from support.broker_process import wait_for_http

        wait_for_http(process.http_port)
        with client_of(process) as http:
            assert send(http, "dave", "pay", Idempotency_Key="order-1") == first
            ids = [each["message_id"] for each in http.get("/receive?user_id=dave").json()["messages"]]
            assert ids == [first, other]


# --- topics


def test_topic_is_created_changed_and_deleted(http: httpx.Client, topic: str) -> None:
    listed = {each["name"]: each for each in http.get("/v1/topics").json()["topics"]}
    assert listed[topic]["partitions"] == 3
    assert http.patch(f"/v1/topics/{topic}", json={"partitions": 5}).json()["partitions"] == 5
    described = http.get(f"/v1/topics/{topic}").json()
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2, 3, 4]
    changed = http.patch(f"/v1/topics/{topic}/configs", json={"retention.ms": "60000"})
    configs = {each["name"]: each for each in changed.json()["configs"]}
    assert (configs["retention.ms"]["value"], configs["retention.ms"]["default"]) == ("60000", False)
    reset = http.patch(f"/v1/topics/{topic}/configs", json={"retention.ms": None}).json()["configs"]
    assert next(each for each in reset if each["name"] == "retention.ms")["default"]
    assert http.delete(f"/v1/topics/{topic}").status_code == 204
    gone = http.get(f"/v1/topics/{topic}")
    assert (gone.status_code, gone.json()["error"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


def test_invalid_topic_is_refused_with_reason(http: httpx.Client, topic: str) -> None:
    for body, status, error in (
        ({"name": topic}, 409, "TOPIC_ALREADY_EXISTS"),
        ({"name": "."}, 400, "INVALID_TOPIC_EXCEPTION"),
        ({"name": "new", "replication_factor": 5}, 400, "INVALID_REPLICATION_FACTOR"),
        ({"name": "new", "configs": {"retention.ms": "soon"}}, 400, "INVALID_CONFIG"),
        ({"name": "new", "configs": {"no.such": "x"}}, 400, "INVALID_CONFIG"),
        ({"name": "new", "partitions": 0}, 400, "INVALID_REQUEST"),
        ({"name": "new", "owner": "me"}, 400, "INVALID_REQUEST"),
    ):
        answer = http.post("/v1/topics", json=body)
        assert (answer.status_code, answer.json()["error"]) == (status, error), answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert http.post("/v1/topics", json={"name": "new", "validate_only": True}).json()["valid"]
    assert http.get("/v1/topics/new").status_code == 404


def test_truncated_topic_starts_at_new_offset(http: httpx.Client, topic: str) -> None:
    messages = [{"value": str(number), "partition": 1} for number in range(5)]
    http.post(f"/v1/topics/{topic}/messages", json={"messages": messages}).raise_for_status()
    answer = http.post(f"/v1/topics/{topic}/truncate", json={"partitions": [{"partition": 1, "offset": 3}]})
    assert answer.json() == {"partitions": [{"partition": 1, "log_start_offset": 3}]}
    page = http.get(f"/v1/topics/{topic}/messages", params={"partition": 1}).json()
    assert [each["value"] for each in page["messages"]] == ["3", "4"]
    early = http.get(f"/v1/topics/{topic}/messages", params={"partition": 1, "offset": 0})
    assert (early.status_code, early.json()["error"]) == (416, "OFFSET_OUT_OF_RANGE")
    assert "from 3 to 5" in early.json()["detail"]


# --- messages


def test_kafka_consumer_reads_produced_messages(
    http: httpx.Client, broker: BrokerProcess, topic: str
) -> None:
    messages = [
        {
            "key": "k",
            "value": "text",
            "headers": {"h": "v"},
            "partition": 0,
            "timestamp_ms": 1_700_000_000_000,
        },
        {"key_base64": "/w==", "value_base64": "AP8=", "partition": 0},
        {"value_json": {"b": [1, None, "\u00e4"]}, "partition": 0},
        {"key": "k", "value": None, "partition": 0},
    ]
    stored = http.post(f"/v1/topics/{topic}/messages", json={"messages": messages}).json()
    assert stored == {"messages": [{"partition": 0, "offset": number} for number in range(4)]}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = consumer.consume(4, timeout=20)
    consumer.close()
    assert [(each.key(), each.value()) for each in read] == [
        (b"k", b"text"),
        (b"\xff", b"\x00\xff"),
        (None, '{"b":[1,null,"\u00e4"]}'.encode()),
        (b"k", None),
    ]
    assert read[0].headers() == [("h", b"v")]
    assert read[0].timestamp()[1] == 1_700_000_000_000
    first, second, _, last = http.get(f"/v1/topics/{topic}/messages", params={"partition": 0}).json()[
        "messages"
    ]
    assert (first["timestamp"], first["headers"]) == (
        "2023-11-14T22:13:20.000Z",
        [{"name": "h", "value": "v"}],
    )
    assert (second["key_base64"], second["value_base64"]) == ("/w==", "AP8=")
    assert last["value"] is None


def test_key_goes_to_the_partition_of_kafka_clients(
    http: httpx.Client, broker: BrokerProcess, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    places: dict[str, int] = {}
    for number in range(10):
        key = f"key-{number}"
        producer.produce(
            topic, b"", key, on_delivery=lambda _, message, key=key: places.update({key: message.partition()})
        )
    producer.flush(20)
    for key, partition in places.items():
        answer = http.post(f"/v1/topics/{topic}/messages", json={"messages": [{"key": key, "value": ""}]})
        assert answer.json()["messages"][0]["partition"] == partition


def test_binary_body_is_a_value_or_framed_messages(http: httpx.Client, topic: str) -> None:
    path = f"/v1/topics/{topic}/messages"
    one = http.post(
        path,
        params={"key": "k", "partition": "2"},
        content=b"\x00\xff",
        headers={"content-type": "application/octet-stream"},
    )
    assert one.json() == {"messages": [{"partition": 2, "offset": 0}]}
    frames = (
        struct.pack(">i1si2s", 1, b"k", 2, b"v1")
        + struct.pack(">ii2s", -1, 2, b"v2")
        + struct.pack(">ii", -1, -1)
    )
    framed = {"content-type": "application/vnd.penstock.messages"}
    many = http.post(path, params={"partition": "2"}, content=frames, headers=framed)
    assert [each["offset"] for each in many.json()["messages"]] == [1, 2, 3]
    page = http.get(path, params={"partition": "2"}).json()["messages"]
    assert [each.get("value") for each in page] == [None, "v1", "v2", None]
    for cut in (b"\x00", frames[:-1], struct.pack(">i", -2), struct.pack(">i", 100), b""):
        assert http.post(path, content=cut, headers=framed).status_code == 400


def test_messages_are_found_by_time_and_by_key(http: httpx.Client, topic_name: str) -> None:
    made = http.post(
        "/v1/topics", json={"name": topic_name, "partitions": 2, "configs": {"index.by.key": "true"}}
    )
    made.raise_for_status()
    path = f"/v1/topics/{topic_name}/messages"
    messages = [
        {"key": f"k{number % 2}", "value": str(number), "timestamp_ms": 1_000_000 + number}
        for number in range(6)
    ]
    stored = http.post(path, json={"messages": messages}).json()["messages"]
    by_key = http.get(path, params={"key": "k1"}).json()
    assert [each["value"] for each in by_key["messages"]] == ["1", "3", "5"]
    by_time = http.get(path, params={"partition": stored[0]["partition"], "time_ms": 1_000_003}).json()
    assert by_time["messages"][-1]["timestamp_ms"] >= 1_000_003
    assert all(each["timestamp_ms"] >= 1_000_003 for each in by_time["messages"])


def test_key_is_found_in_added_partitions_too(http: httpx.Client, topic_name: str) -> None:
    configs = {"index.by.key": "true"}
    http.post("/v1/topics", json={"name": topic_name, "partitions": 2, "configs": configs}).raise_for_status()
    path = f"/v1/topics/{topic_name}/messages"

    def write(*values: str, **where: int) -> None:
        for value in values:
            message = {"key": "k", "value": value, **where}
            http.post(path, json={"messages": [message]}).raise_for_status()

    def read(**asked: Any) -> tuple[list[str], str]:
        answer = http.get(path, params={"key": "k", **asked}).json()
        return [each["value"] for each in answer["messages"]], answer["positions"]

    write("1", partition=1)
    write("2", partition=0)
    http.patch(f"/v1/topics/{topic_name}", json={"partitions": 5}).raise_for_status()
    write("3", "4", partition=4)
    write("5", partition=0)
    values, positions = read(limit=2)
    rest, end = read(positions=positions)
    assert values + rest == ["1", "2", "3", "4", "5"]
    assert read(positions=end) == ([], end)
    later: list[Any] = []
    waiting = threading.Thread(target=lambda: later.append(read(positions=end, wait=20)))
    waiting.start()
    write("6", partition=3)
    waiting.join(30)
    assert later[0][0] == ["6"]
    assert http.get(path, params={"key": "k", "positions": "1:x"}).status_code == 400


def test_idempotency_key_belongs_to_one_message(http: httpx.Client, topic_name: str) -> None:
    configs = {"index.by.key": "true"}
    http.post("/v1/topics", json={"name": topic_name, "partitions": 2, "configs": configs}).raise_for_status()
    path = f"/v1/topics/{topic_name}/messages"

    def write(message: Any) -> httpx.Response:
        return http.post(path, json={"messages": [message]}, headers={"Idempotency-Key": "one"})

    first = write({"key": "k", "value": "a"})
    assert write({"key": "k", "value": "a"}).json() == first.json()
    assert write({"key": "k", "value": "b"}).status_code == 422
    assert write({"key": "k", "value": "a", "headers": {"n": "v"}}).status_code == 422
    assert write({"value": "a"}).status_code == 400
    assert len(http.get(path, params={"key": "k"}).json()["messages"]) == 1
    sent = {"from_user": "ann", "to_user": topic_name, "message": "pay 5"}
    of_others = (sent | {"from_user": "eve"}, 422), (sent | {"message": "pay 500"}, 422)
    for body, status in ((sent, 200), (sent, 200), *of_others):
        assert http.post("/send", json=body, headers={"Idempotency-Key": "1"}).status_code == status


def test_page_of_large_messages_has_few_of_them(http: httpx.Client, topic_name: str) -> None:
    for number in range(4):
        send(http, topic_name, f"{number}" * 700_000)
    received: list[str] = []
    last: dict[str, str] = {}
    while page := http.get("/receive", params={"user_id": topic_name, **last}).json()["messages"]:
        assert len(page) <= 2
        received += [each["message"][0] for each in page]
        last = {"last_message_id": page[-1]["message_id"]}
    assert received == ["0", "1", "2", "3"]


def test_read_by_key_without_index_names_the_setting(http: httpx.Client, topic: str) -> None:
    answer = http.get(f"/v1/topics/{topic}/messages", params={"key": "k"})
    assert answer.status_code == 400
    assert "index.by.key=true" in answer.json()["detail"]


def test_read_waits_for_the_next_message(http: httpx.Client, broker: BrokerProcess, topic: str) -> None:
    found: list[httpx.Response] = []

    def read() -> None:
        with client_of(broker) as other:
            found.append(other.get(f"/v1/topics/{topic}/messages", params={"partition": "0", "wait": "20"}))

    waiting = threading.Thread(target=read)
    waiting.start()
    http.post(
        f"/v1/topics/{topic}/messages", json={"messages": [{"value": "x", "partition": 0}]}
    ).raise_for_status()
    waiting.join(10)
    assert [each["value"] for each in found[0].json()["messages"]] == ["x"]


def test_too_large_message_fails_alone(http: httpx.Client, topic: str) -> None:
    http.patch(f"/v1/topics/{topic}/configs", json={"max.message.bytes": "1000"}).raise_for_status()
    messages = [
        {"value": "s" * 600, "partition": 0},
        {"value": "l" * 5_000, "partition": 0},
        {"value": "s" * 600, "partition": 0},
    ]
    answer = http.post(f"/v1/topics/{topic}/messages", json={"messages": messages})
    assert (answer.status_code, answer.json()["error"]) == (413, "MESSAGE_TOO_LARGE")
    assert answer.json()["messages"] == [
        {"partition": 0, "offset": 0},
        {"partition": 0, "error": "MESSAGE_TOO_LARGE"},
        {"partition": 0, "offset": 1},
    ]


def test_only_committed_messages_are_read(http: httpx.Client, broker: BrokerProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(20)
    for outcome in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce(topic, outcome.__name__.encode(), partition=0)
        outcome(20)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(20)
    path = f"/v1/topics/{topic}/messages?partition=0"
    assert [each["value"] for each in http.get(path).json()["messages"]] == ["commit_transaction"]
    listed = {
        each["transactional_id"]: each["state"]
        for each in http.get("/v1/transactions").json()["transactions"]
    }
    assert listed[topic] == "Ongoing"
    assert http.post(f"/v1/transactions/{topic}/abort").status_code == 204
    again = http.post(f"/v1/transactions/{topic}/abort")
    assert again.status_code in (400, 409), again.text
    assert [each["value"] for each in http.get(path).json()["messages"]] == ["commit_transaction"]


# --- groups, the cluster, the gateway itself


def test_group_is_described_reset_and_deleted(http: httpx.Client, broker: BrokerProcess, topic: str) -> None:
    messages = [{"value": str(number), "partition": 0} for number in range(10)]
    http.post(f"/v1/topics/{topic}/messages", json={"messages": messages}).raise_for_status()
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    assert len(consumer.consume(4, timeout=20)) == 4
    consumer.commit(asynchronous=False)
    described = http.get(f"/v1/groups/{topic}").json()
    assert (described["type"], described["state"], described["lag"]) == ("classic", "Stable", 6)
    assert described["members"][0]["partitions"] == {topic: [0, 1, 2]}
    busy = http.post(f"/v1/groups/{topic}/reset", json={"topic": topic, "to": "earliest"})
    assert (busy.status_code, busy.json()["error"]) == (409, "NON_EMPTY_GROUP")
    assert http.delete(f"/v1/groups/{topic}").status_code == 409
    consumer.close()
    reset = http.post(f"/v1/groups/{topic}/reset", json={"topic": topic, "to": "earliest"})
    assert {"topic": topic, "partition": 0, "offset": 0} in reset.json()["offsets"]
    assert http.get(f"/v1/groups/{topic}").json()["lag"] == 10
    assert http.delete(f"/v1/groups/{topic}").status_code == 204
    exact = {"offsets": [{"topic": topic, "partition": 0, "offset": 7}]}
    http.post(f"/v1/groups/{topic}/reset", json=exact).raise_for_status()
    assert http.get(f"/v1/groups/{topic}").json()["lag"] == 3
    uncommitted = {"messages": [{"value": "more", "partition": 1}] * 5}
    http.post(f"/v1/topics/{topic}/messages", json=uncommitted).raise_for_status()
    described = http.get(f"/v1/groups/{topic}").json()
    assert (described["offsets"][1]["committed"], described["offsets"][1]["lag"]) == (None, 5)
    assert described["lag"] == 8
    assert topic in {each["id"] for each in http.get("/v1/groups").json()["groups"]}
    assert http.delete(f"/v1/groups/{topic}").status_code == 204
    assert http.get(f"/v1/groups/{topic}").status_code == 404
    assert http.post(f"/v1/groups/{topic}/reset", json={"topic": topic}).status_code == 400


def test_the_cluster_and_its_brokers_are_shown(http: httpx.Client, broker: BrokerProcess) -> None:
    [shown] = http.get("/v1/brokers").json()["brokers"]
    assert (shown["port"], shown["controller"]) == (broker.port, True)
    assert http.get("/v1/cluster").json()["status"] == "ok"
    path = f"/v1/brokers/{shown['id']}/configs"
    configs = {each["name"]: each for each in http.get(path).json()["configs"]}
    assert configs["http.port"]["value"] == str(broker.http_port)
    assert http.patch(path, json={"log.retention.ms": "70000"}).status_code == 200
    assert http.get("/v1/brokers/77/configs").status_code == 404


def test_only_allowed_origins_pass_cors(http: httpx.Client) -> None:
    own = http.get("/v1/topics", headers={"origin": "https://app.example"})
    assert own.headers["access-control-allow-origin"] == "https://app.example"
    assert "access-control-allow-credentials" not in own.headers
    assert (
        "access-control-allow-origin"
        not in http.get("/v1/topics", headers={"origin": "https://evil"}).headers
    )
    preflight = http.options(
        "/send", headers={"origin": "https://app.example", "access-control-request-method": "POST"}
    )
    assert "POST" in preflight.headers["access-control-allow-methods"]


def test_foreign_page_cannot_change_anything(http: httpx.Client, topic: str) -> None:
    """Send a request that a browser sends without a preflight, withholding only the response from the page."""
    abort = "/v1/transactions/nobodys/abort"
    assert http.post(abort, headers={"origin": "https://evil.example"}).status_code == 403
    assert http.post(abort, headers={"origin": str(http.base_url).rstrip("/")}).status_code == 404
    assert http.get("/v1/topics", headers={"origin": "https://evil.example"}).status_code == 200


def test_page_loads_no_external_assets(http: httpx.Client) -> None:
    page = http.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "/v1/topics/{topic}/messages" in page.text
    assert not re.search(r"(src|href)=.(https?:)?//", page.text)
    assert "<script" not in page.text


def test_metrics_count_requests_and_responses(http: httpx.Client) -> None:
    http.post("/send", json={"from_user": "ann", "to_user": "bob", "message": "hi"})
    http.get("/nope")
    text = http.get("/metrics").text
    assert 'penstock_http_request_seconds_count{endpoint="send"}' in text
    assert 'penstock_http_answers_total{status="404"}' in text
    assert "penstock_http_open_requests 0.0" in text


def test_head_has_the_headers_of_get(http: httpx.Client) -> None:
    answer = http.head("/health")
    assert (answer.status_code, answer.content) == (200, b"")
    assert http.head("/nope").status_code == 404


@pytest.mark.usefixtures("starts_processes")
def test_stop_does_not_wait_for_long_polls(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("stop")) as process:
        answers: list[httpx.Response] = []

        def receive() -> None:
            with client_of(process) as http:
                answers.append(http.get("/receive", params={"user_id": "nobody", "wait": "25"}))

        waiting = threading.Thread(target=receive)
        waiting.start()
        with client_of(process) as http:
            while "penstock_http_open_requests 1.0" not in http.get("/metrics").text:
                pass
        process.stop()
        waiting.join(10)
        assert (answers[0].status_code, answers[0].json()["retriable"]) == (503, True)
