"""Kafka's `server.properties`, unchanged."""

from __future__ import annotations

import pytest

from penstock.config import (
    ADVERTISED_LISTENERS,
    HOST,
    LOG_DIR,
    NODE_ID,
    PORT,
    RETENTION_MS,
    SEGMENT_MS,
    Address,
    ListenerEndpoint,
    TopicConfig,
)
from penstock.config.loading import Loaded, load_broker_config
from penstock.errors import ConfigError

KRAFT = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def load(content: str, **command_line: str) -> Loaded:
    named = {name.replace("_", "."): value for name, value in command_line.items()}
    return load_broker_config(file=("server.properties", content), command_line=named)


def test_kafkas_default_file_is_accepted() -> None:
    loaded = load(KRAFT)
    config = loaded.config
    assert (config[NODE_ID], config[LOG_DIR]) == (1, "/tmp/kraft-combined-logs")
    assert (config[HOST], config[PORT]) == ("0.0.0.0", 9092)
    assert config[ADVERTISED_LISTENERS] == (ListenerEndpoint("PLAINTEXT", Address("localhost", 9092)),)
    assert TopicConfig(config)[RETENTION_MS] == 168 * 3_600_000
    assert {"num.io.threads", "process.roles", "socket.send.buffer.bytes"} <= loaded.ignored.keys()


def test_settings_of_a_zookeeper_broker_are_translated() -> None:
    config = load("broker.id=7\nlisteners=PLAINTEXT://kafka1:9099\nlog.roll.hours=2").config
    assert (config[NODE_ID], config[HOST], config[PORT]) == (7, "kafka1", 9099)
    assert TopicConfig(config)[SEGMENT_MS] == 7_200_000


def test_finest_unit_of_a_duration_takes_precedence() -> None:
    retained = {
        "log.retention.hours=1": 3_600_000,
        "log.retention.hours=1\nlog.retention.minutes=5": 300_000,
        "log.retention.hours=1\nlog.retention.minutes=5\nlog.retention.ms=9": 9,
        "log.retention.hours=-1": -1,
    }
    for content, expected in retained.items():
        assert TopicConfig(load(content).config)[RETENTION_MS] == expected


def test_command_line_overrides_a_translated_option() -> None:
    assert load("listeners=PLAINTEXT://:9092\nbroker.id=1", port="5", node_id="2").config[PORT] == 5


def test_all_problems_are_named_at_once() -> None:
    content = """
    log.dirs=/a,/b
    listeners=PLAINTEXT://:9092,PLAINTEXT://:9093
    log.retention.hours=many
    num.partitions=none
    no.such.setting=1
    """
    with pytest.raises(ConfigError) as refusal:
        load(content)
    lines = str(refusal.value).splitlines()
    assert len(lines) == 5
    assert all(line.startswith("server.properties: ") for line in lines)
    for name in ("log.dirs", "listeners", "log.retention.hours", "num.partitions", "no.such.setting"):
        assert any(name in line for line in lines)
