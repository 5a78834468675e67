"""Push with real clients and processes: curl, a browser's EventSource, Kafka consumers in the same group."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from confluent_kafka import Consumer

from support.broker_process import BrokerProcess, StartBroker, free_ports, wait_for_http

PROGRAM = Path(__file__).with_name("push_program.js")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NODE = shutil.which("node")
WAIT_SECONDS = 30.0


def url(broker: BrokerProcess, path: str) -> str:
    return f"http://127.0.0.1:{broker.http_port}{path}"


def create(broker: BrokerProcess) -> None:
    wait_for_http(broker.http_port)
    made = httpx.post(url(broker, "/v1/topics"), json={"name": "orders", "partitions": 1})
    assert made.status_code == 201, made.text


def send(broker: BrokerProcess, *values: str) -> None:
    messages = [{"value": value} for value in values]
    sent = httpx.post(url(broker, "/v1/topics/orders/messages"), json={"messages": messages})
    assert sent.status_code == 200, sent.text


def test_curl_reads_events_of_a_topic(start_broker: StartBroker) -> None:
    broker = start_broker()
    create(broker)
    send(broker, "first", "second")
    address = url(broker, "/v1/topics/orders/events?from=earliest")
    with subprocess.Popen(["curl", "-sN", address], stdout=subprocess.PIPE, text=True) as curl:
        assert curl.stdout is not None
        try:
            data = (json.loads(line[6:]) for line in curl.stdout if line.startswith("data: "))
            assert [next(data)["value"] for _ in range(2)] == ["first", "second"]
            send(broker, "third")
            assert next(data)["value"] == "third"
        finally:
            curl.kill()


class _Page(BaseHTTPRequestHandler):
    reports: Queue[Any]

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<script>" + PROGRAM.read_bytes() + b"</script>")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(204)
        self.end_headers()
        self.reports.put(json.loads(body))

    def log_message(self, *_: object) -> None:
        """A stream that no client reads."""


@contextmanager
def page(port: int) -> Iterator[Queue[Any]]:
    reports: Queue[Any] = Queue()
    handler = type("Page", (_Page,), {"reports": reports})
    with HTTPServer(("127.0.0.1", port), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield reports
        finally:
            server.shutdown()
            thread.join()


def browser_command(program: str, directory: Path, page_url: str, query: str) -> list[str]:
    if program == NODE:
        return [program, "--experimental-eventsource", "--no-warnings", str(PROGRAM), query]
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={directory / 'profile'}"]
    return [program, *flags, "--remote-debugging-port=0", f"{page_url}?{query}"]


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(CHROMIUM, marks=pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")),
        pytest.param(NODE, marks=pytest.mark.skipif(NODE is None, reason="no Node here")),
    ],
)
def test_a_browser_reads_a_group_over_many_connections(
    start_broker: StartBroker, tmp_path: Path, program: str
) -> None:
    [port] = free_ports(1)
    origin = f"http://127.0.0.1:{port}"
    broker = start_broker([f"gateway.allowed.origins={origin}"])
    create(broker)
    send(broker, *map(str, range(25)))
    # The stream ends when its window is full: the browser reconnects by itself, with the last event id.
    events = url(broker, "/v1/topics/orders/events?group=readers&window=10")
    query = urlencode({"events": events, "count": 25, "report": f"{origin}/report"})
    command = browser_command(program, tmp_path, origin, query)
    with page(port) as reports:
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            seen = reports.get(timeout=WAIT_SECONDS)
        finally:
            browser.kill()
            browser.wait()
    assert [value for _, value in seen] == [str(number) for number in range(25)]
    assert len({event_id for event_id, _ in seen}) == 25


def test_kafka_consumer_continues_at_offsets_of_a_stream(start_broker: StartBroker) -> None:
    broker = start_broker()
    create(broker)
    send(broker, *map(str, range(10)))
    address = url(broker, "/v1/topics/orders/events?group=readers")
    with httpx.stream("GET", address, timeout=WAIT_SECONDS) as response:
        last_id = ""
        for line in response.iter_lines():
            if line.startswith("id: "):
                last_id = line[4:]
            if line.startswith("data: ") and json.loads(line[6:])["value"] == "5":
                break
        acknowledge = url(broker, "/v1/groups/readers/topics/orders/acknowledgements")
        answer = httpx.post(acknowledge, json={"id": last_id})
        assert answer.json() == {"partitions": [0]}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    consumer.subscribe(["orders"])
    try:
        record = consumer.poll(WAIT_SECONDS)
        assert record is not None
        assert record.error() is None
        assert record.value() == b"6"
    finally:
        consumer.close()
