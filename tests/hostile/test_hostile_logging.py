"""Log and metrics under hostile input: client text adds no lines and no label values (K38)."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
from collections.abc import Callable

import pytest
from watch import Watch, create_topic

from support import raw
from support.broker_process import BrokerProcess

SETTINGS = ("logging.level=debug", "metrics.max.topics=5", "auto.create.topics.enable=true")
FORGED = 'x\n{"level": "error", "message": "forged"}\r\n\x1b[31m\x1b]0;title\x07${jndi:ldap://x}\u2028\x00'
NASTY_TEXTS = {
    "newline-and-ansi": FORGED,
    "32-kilobytes": "A" * 32_000,
    "newlines-by-the-thousand": "\n" * 30_000,
    "unicode": "\U0001f600\u202e" * 4000,
    "format": "%s%n{0}{level}" * 100,
}
TEXT_LINE = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} [A-Z]+ |    )")


def say(port: int, text: str) -> None:
    """Send the text in every place that a client controls: client id, topic names, config names."""
    encoded = text.encode()
    with raw.RawClient(port) as client:
        client.send(raw.framed(struct.pack(">hhih", 999, 0, 1, len(encoded)) + encoded))
        client.read_until_closed()
    frames = [
        raw.request(raw.METADATA, 4, client_id=text, topics=[{"name": text}], allow_auto_topic_creation=True),
        raw.request(raw.CREATE_TOPICS, 5, client_id=text, topics=[{"name": text, "num_partitions": 1}]),
        raw.request(raw.DELETE_TOPICS, 1, client_id=text, topic_names=[text]),
        raw.request(
            raw.INCREMENTAL_ALTER_CONFIGS,
            0,
            client_id=text,
            resources=[
                {"resource_type": 4, "resource_name": "1", "configs": [{"name": text, "value": text}]}
            ],
        ),
        raw.request(
            raw.CREATE_TOPICS,
            5,
            topics=[{"name": "fine", "num_partitions": 1, "configs": [{"name": text, "value": text}]}],
        ),
        raw.request(
            raw.PRODUCE,
            7,
            client_id=text,
            acks=0,
            topic_data=[{"name": text, "partition_data": [{"records": b"x"}]}],
        ),
    ]
    for frame in frames:
        with raw.RawClient(port) as client, contextlib.suppress(ConnectionError):
            client.send(frame)
            client.finish_sending()
            client.read_until_closed()


@pytest.mark.parametrize("text", NASTY_TEXTS.values(), ids=NASTY_TEXTS)
def test_client_text_is_escaped_and_truncated_in_the_log(watch: Watch, text: str) -> None:
    say(watch.broker.port, text)
    lines = watch.log_lines()
    assert not any(line["message"] == "forged" for line in lines)


def test_text_log_has_one_line_for_each_event_under_hostile_input(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker(["logging.format=text", "logging.level=debug"])
    for text in NASTY_TEXTS.values():
        say(broker.port, text)
    broker.stop()
    lines = broker.log_path.read_text().splitlines()
    for line in (line for line in lines if "serves Kafka clients" not in line):
        assert TEXT_LINE.match(line), line[:200]
        assert line.isprintable()
        assert len(line) < 2000


def test_log_lines_about_refused_requests_are_rate_limited(watch: Watch) -> None:
    for _ in range(500):
        with watch.client() as client:
            client.send(b"\xff\xff\xff\xff")
            client.expect_refused()
    assert len(watch.log_lines()) < 50


def test_names_that_clients_make_up_do_not_become_metrics(watch: Watch) -> None:
    with watch.client() as client:
        client.call(raw.METADATA, 1, topics=[{"name": "first"}])
        watch.metrics()  # the second scrape counts the first
        before = len(watch.metrics().splitlines())
        for number in range(100):
            client.send(
                raw.request(raw.METADATA, 4, client_id=f"client-{number}", topics=[{"name": f"no-{number}"}])
            )
            client.read_frame()
    text = watch.metrics()
    assert "client-" not in text
    assert len(text.splitlines()) <= before + 20


def test_metrics_of_topics_beyond_the_limit_are_combined(watch: Watch) -> None:
    with watch.client() as client:
        for number in range(30):
            create_topic(client, f"measured-{number}")
    rows = [row for row in watch.metrics().splitlines() if row.startswith("penstock_topic_partitions{")]
    assert len(rows) == 6
    assert any('"(other)"' in row for row in rows)


def test_log_lines_about_invalid_http_requests_are_rate_limited(watch: Watch) -> None:
    for content in (b"\x16\x03\x01 garbage\r\n\r\n", b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n") * 100:
        with socket.create_connection(("127.0.0.1", watch.broker.http_port), timeout=5) as connection:
            connection.sendall(content)
            connection.recv(1000)
    assert len(watch.log_lines()) < 20
