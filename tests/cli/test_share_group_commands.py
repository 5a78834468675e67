"""`penstock group` with share groups, against a real broker."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from penstock.cli.main import run
from support.broker_process import Address

RECORDS = 20
PATIENCE_SECONDS = 60.0


@pytest.fixture
def cli(broker: Address, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker.bootstrap)

    def command(*arguments: str, code: int = 0) -> str:
        assert run(arguments) == code
        shown = capfd.readouterr()
        return shown.out if code == 0 else shown.err

    return command


def test_share_group_is_listed_described_reset_and_deleted(
    broker: Address, cli: Any, topic_name: str
) -> None:
    group = f"share-{topic_name}"
    cli("topic", "create", topic_name, "--partitions", "1")
    _read_from_start(broker, group)
    consumer = ShareConsumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic_name])
    consumer.poll(1.0)
    _produce(broker, topic_name)
    held = _held(consumer)
    for message in held[:5]:
        consumer.acknowledge(message)
    consumer.commit_sync(10.0)
    described = json.loads(cli("group", "describe", group, "--json"))
    assert (described["type"], described["state"], described["lag"]) == ("share", "stable", RECORDS - 5)
    [partition] = described["partitions"]
    assert (partition["start_offset"], partition["in_flight"], partition["waiting"]) == (5, RECORDS - 5, 0)
    assert partition["oldest_lock_ms"] >= 0
    assert "has members" in cli("group", "reset", group, "--all-topics", "--to-earliest", code=1)
    consumer.close()
    listed = {each["group"]: each for each in json.loads(cli("group", "list", "--json"))}
    assert (listed[group]["type"], listed[group]["state"]) == ("share", "empty")
    assert "in flight" in cli("group", "describe", group)
    reset = json.loads(
        cli("group", "reset", group, "--topic", topic_name, "--to-offset", "2", "--execute", "--json")
    )
    assert reset["partitions"] == [{"topic": topic_name, "partition": 0, "old": 5, "new": 2}]
    [partition] = json.loads(cli("group", "describe", group, "--json"))["partitions"]
    assert (partition["start_offset"], partition["lag"]) == (2, RECORDS - 2)
    cli("group", "delete", group, "--yes")
    assert group not in cli("group", "list", "--json")


def _read_from_start(broker: Address, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def _produce(broker: Address, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "linger.ms": 50})
    for number in range(RECORDS):
        producer.produce(topic, str(number).encode())
    assert producer.flush(30) == 0


def _held(consumer: ShareConsumer) -> list[Any]:
    held: list[Any] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(held) < RECORDS and time.monotonic() < deadline:
        held += [message for message in consumer.poll(1.0) if message.error() is None]
    assert len(held) == RECORDS
    return held
