"""A byte of a stored record changes while its broker is stopped: no client gets the wrong value afterwards."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from penstock import Admin, AsyncConsumer, Consumer, CorruptRecords, Message, Producer, TopicPartition
from support.broker_process import BrokerProcess
from support.changed_bytes import segments_of
from support.eventually import eventually

TOPIC = "orders"
COUNT = 20
DAMAGED = 10
KINDS = ("key", "value", "name", "length", "magic", "crc", "delta")
HTTP_SECONDS = 30.0


@pytest.fixture
def broker(starts_processes: None, tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, ["log.index.by.key=true", "mailbox.num.partitions=1"])
    process.start()
    try:
        yield process
        process.stop()
    finally:
        process.kill()


def fill(broker: BrokerProcess) -> None:
    """Write twenty records, each in its own batch."""
    Admin(broker.bootstrap).topics.create(TOPIC)
    with Producer(broker.bootstrap) as producer:
        for number in range(COUNT):
            headers = {f"name-{number};": b"x"}
            producer.send(TOPIC, b"value-%d;" % number, key=b"key-%d;" % number, headers=headers)
            producer.flush()


def damage(broker: BrokerProcess, what: str) -> None:
    broker.stop()
    [segment] = segments_of(broker.data_dir, TOPIC)
    segment.damage(what, DAMAGED)
    broker.start()


def check(message: Message) -> None:
    expected = (b"key-%d;" % message.offset, b"value-%d;" % message.offset)
    assert (message.raw_key, message.raw) == expected
    assert message.headers == ((f"name-{message.offset};", b"x"),)


def http(broker: BrokerProcess) -> httpx.Client:
    return httpx.Client(
        base_url=f"http://127.0.0.1:{broker.http_port}",
        timeout=HTTP_SECONDS,
        transport=httpx.HTTPTransport(retries=5),
    )


def names_the_place(text: str) -> bool:
    return f"{TOPIC}-0" in text and str(DAMAGED) in text


@pytest.mark.parametrize("what", KINDS)
def test_consumer_raises_at_the_damage_and_reads_on_behind_it(broker: BrokerProcess, what: str) -> None:
    fill(broker)
    damage(broker, what)
    with Consumer(TOPIC, bootstrap=broker.bootstrap, idle_timeout_s=HTTP_SECONDS) as consumer:
        seen = []
        with pytest.raises(CorruptRecords) as raised:  # noqa: PT012 - the loop is what raises
            for message in consumer:
                check(message)
                seen.append(message.offset)
        assert seen == list(range(DAMAGED))
        place = (raised.value.topic, raised.value.partition, raised.value.offset)
        assert place == (TOPIC, 0, DAMAGED)
        assert names_the_place(str(raised.value))
        if what in ("length", "magic", "delta"):
            return  # a frame without a known end
        consumer.seek(TopicPartition(TOPIC, 0), DAMAGED + 1)
        for message in consumer:
            check(message)
            seen.append(message.offset)
            if message.offset == COUNT - 1:
                break
        assert seen == [offset for offset in range(COUNT) if offset != DAMAGED]


def test_async_consumer_raises_at_the_damage(broker: BrokerProcess) -> None:
    fill(broker)
    damage(broker, "value")

    async def read() -> list[int]:
        seen = []
        async with AsyncConsumer(TOPIC, bootstrap=broker.bootstrap, group="g") as consumer:
            with pytest.raises(CorruptRecords, match=f"{TOPIC}-0 .* {DAMAGED}"):  # noqa: PT012 - as above
                async for message in consumer:
                    check(message)
                    seen.append(message.offset)
        return seen

    assert asyncio.run(read()) == list(range(DAMAGED))


def test_consumer_that_checks_no_crcs_reads_the_bytes_that_are_there(broker: BrokerProcess) -> None:
    fill(broker)
    damage(broker, "value")
    with Consumer(TOPIC, bootstrap=broker.bootstrap, check_crcs=False) as consumer:
        values = [consumer.poll(HTTP_SECONDS) for _ in range(COUNT)]
    assert [each.raw for each in values if each is not None][DAMAGED] == b"value-10:"


@pytest.mark.parametrize("arguments", [(), ("--group", "g")])
def test_consume_command_fails_at_the_damage(broker: BrokerProcess, arguments: tuple[str, ...]) -> None:
    fill(broker)
    damage(broker, "value")
    command = [sys.executable, "-m", "penstock.cli.main", "consume", TOPIC, "--bootstrap", broker.bootstrap]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [f"value-{number};" for number in range(DAMAGED)]
    assert names_the_place(done.stderr)


@pytest.mark.parametrize("what", KINDS)
def test_http_page_ends_before_the_damage_and_the_next_is_an_error(broker: BrokerProcess, what: str) -> None:
    fill(broker)
    damage(broker, what)
    with http(broker) as client:
        path = f"/v1/topics/{TOPIC}/messages"
        page = client.get(path, params={"partition": 0, "offset": 0}).json()
        assert [each["value"] for each in page["messages"]] == [f"value-{n};" for n in range(DAMAGED)]
        assert page["next_offset"] == DAMAGED
        refused = client.get(path, params={"partition": 0, "offset": page["next_offset"]})
        assert refused.status_code == 500
        assert refused.json()["error"] == "CORRUPT_MESSAGE"
        assert names_the_place(refused.json()["detail"])


def test_health_and_metrics_tell_of_a_damaged_batch_that_was_fetched(broker: BrokerProcess) -> None:
    fill(broker)
    damage(broker, "value")
    with http(broker) as client:
        client.get(f"/v1/topics/{TOPIC}/messages", params={"partition": 0, "offset": DAMAGED})
        health = client.get("/health")
        metrics = client.get("/metrics").text
    assert health.status_code == 200
    body = health.json()
    assert (body["status"], body["degraded"]) == ("serving", True)
    [alarm] = body["alarms"]
    assert (alarm["kind"], alarm["topic"], alarm["partition"]) == ("corrupt_fetch", TOPIC, 0)
    assert names_the_place(alarm["detail"])
    assert "penstock_alarms_corrupt_fetch_total 1" in metrics


def test_event_stream_ends_with_a_problem_at_the_damage(broker: BrokerProcess) -> None:
    fill(broker)
    damage(broker, "value")
    with (
        http(broker) as client,
        client.stream("GET", f"/v1/topics/{TOPIC}/events", params={"from": "earliest"}) as stream,
    ):
        lines = list(stream.iter_lines())
    data = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert [each["value"] for each in data[:-1]] == [f"value-{n};" for n in range(DAMAGED)]
    assert data[-1]["error"] == "CORRUPT_MESSAGE"
    assert names_the_place(data[-1]["detail"])


def test_websocket_ends_with_a_problem_at_the_damage(broker: BrokerProcess) -> None:
    fill(broker)
    damage(broker, "value")
    with http(broker) as client:
        client.get("/health")
    url = f"ws://127.0.0.1:{broker.http_port}/v1/topics/{TOPIC}/stream?from=earliest"
    with connect(url) as socket:
        socket.send(json.dumps({"credit": 100}))
        data = [json.loads(socket.recv(HTTP_SECONDS)) for _ in range(DAMAGED + 1)]
    assert [each["value"] for each in data[:-1]] == [f"value-{n};" for n in range(DAMAGED)]
    assert data[-1]["error"]["error"] == "CORRUPT_MESSAGE"
    assert names_the_place(data[-1]["error"]["detail"])


@pytest.mark.parametrize("what", ["key", "value", "length"])
def test_lookup_by_key_never_passes_over_a_damaged_record(broker: BrokerProcess, what: str) -> None:
    fill(broker)
    damage(broker, what)
    with http(broker) as client:
        path = f"/v1/topics/{TOPIC}/messages"
        wanted: dict[str, str | int] = {"partition": 0, "key": f"key-{DAMAGED};"}
        refused = client.get(path, params=wanted)
        other = client.get(path, params=wanted | {"key": "key-3;"})
        behind = client.get(path, params=wanted | {"key": "key-15;", "offset": DAMAGED + 1})
    assert refused.status_code == 500
    assert refused.json()["error"] == "CORRUPT_MESSAGE"
    assert [each["value"] for each in other.json()["messages"]] == ["value-3;"]
    assert [each["value"] for each in behind.json()["messages"]] == ["value-15;"]


@pytest.mark.usefixtures("starts_processes")
def test_scrub_finds_the_damage_and_health_shows_its_range(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path, ["log.scrub.interval.ms=100"])
    process.start()
    try:
        fill(process)
        damage(process, "value")
        with http(process) as client:
            eventually(lambda: client.get("/health").json()["alarms"], "the scrub finds the damage")
            health = client.get("/health").json()
            metrics = client.get("/metrics").text
        [found] = health["damage"]
        reason = found.pop("reason")
        assert found == {
            "topic": TOPIC,
            "partition": 0,
            "base_offset": DAMAGED,
            "end_offset": DAMAGED + 1,
        }
        assert "CRC" in reason
        assert [alarm["kind"] for alarm in health["alarms"]] == ["damaged_log"]
        assert "penstock_scrub_damaged_ranges_total 1" in metrics
        with Consumer(TOPIC, bootstrap=process.bootstrap) as consumer:
            consumer.poll(HTTP_SECONDS)
            consumer.seek(TopicPartition(TOPIC, 0), DAMAGED)
            with pytest.raises(CorruptRecords, match=f"{TOPIC}-0 .* {DAMAGED}"):
                consumer.poll(HTTP_SECONDS)
            consumer.seek(TopicPartition(TOPIC, 0), health["damage"][0].get("end_offset"))
            message = consumer.poll(HTTP_SECONDS)
        assert message is not None
        assert message.offset == DAMAGED + 1
        process.stop()
    finally:
        process.kill()


def test_receive_reports_a_damaged_message_and_continues_after_it(broker: BrokerProcess) -> None:
    with http(broker) as client:
        for number in range(3):
            body = {"from_user": "a", "to_user": "b", "message": f"text-{number};"}
            client.post("/send", json=body).raise_for_status()
    broker.stop()
    [segment] = segments_of(broker.data_dir, "mailbox")
    segment.flip_text(b"text-1;")
    broker.start()
    with http(broker) as client:
        first = client.get("/receive", params={"user_id": "b"}).json()["messages"]
        assert [each["message"] for each in first] == ["text-0;"]
        refused = client.get("/receive", params={"user_id": "b", "last_message_id": first[0]["message_id"]})
        assert (refused.status_code, refused.json()["error"]) == (500, "CORRUPT_MESSAGE")
        rest = client.get(
            "/receive", params={"user_id": "b", "last_message_id": refused.json()["last_message_id"]}
        )
    assert [each["message"] for each in rest.json()["messages"]] == ["text-2;"]
