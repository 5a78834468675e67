"""A broker with content for the console, a browser, and a page that must not complain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from browser import Watch, executable, open_browser

from support.broker_process import BrokerProcess, wait_for_http

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\u202eevil\u0000"

SETTINGS = (
    "durability=os",
    "num.partitions=2",
    "console.hide.values=*.private",
    "authorization.mode=report",
    "webhook.allow.private.addresses=true",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser for the tests of one file: Playwright's loop runs until it is closed, and would disturb others."""
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def broker(starts_processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    executable()  # without a browser the tests are skipped before the broker starts
    process = BrokerProcess(tmp_path_factory.mktemp("console"), SETTINGS)
    process.start()
    try:
        wait_for_http(process.http_port)
        with httpx.Client(base_url=f"http://127.0.0.1:{process.http_port}", timeout=30) as http:
            for name in (
                "orders",
                "payments",
                "cards.private",
                *(f"metrics-{number:03d}" for number in range(300)),
            ):
                http.post("/v1/topics", json={"name": name}).raise_for_status()
            messages = [
                {"key": f"k{number}", "value_json": {"id": number, "user": {"id": f"u{number}"}}}
                for number in range(500)
            ]
            http.post("/v1/topics/orders/messages", json={"messages": messages}).raise_for_status()
            hostile = [
                {"key": HOSTILE, "value": HOSTILE, "partition": 0},
                {"value": "[" * 10_000, "partition": 0},
                {"value_base64": "/wD+", "partition": 0},
            ]
            http.post("/v1/topics/payments/messages", json={"messages": hostile}).raise_for_status()
            http.post(
                "/v1/topics/cards.private/messages", json={"messages": [{"value": "secret number"}]}
            ).raise_for_status()
            http.post(
                "/v1/groups/billing/reset", json={"topic": "orders", "to": "earliest"}
            ).raise_for_status()
            make_queue(http)
            http.post("/v1/users", json={"name": "ann", "password": "secret"}).raise_for_status()
            pipeline = {"source": {"topics": ["orders"]}, "target": {"archive": "/tmp/archive"}}
            http.put("/v1/pipelines/clean", json=pipeline).raise_for_status()
        yield process
    finally:
        process.kill()


def make_queue(http: httpx.Client) -> None:
    """A queue with a waiting message and a dead letter, and a topic with a delayed message."""
    jobs = {"name": "jobs", "partitions": 1, "dead_letter": "jobs-dead"}
    http.post("/v1/queues", json=jobs).raise_for_status()
    http.post("/v1/queues/jobs/messages", json={"messages": [{"value": "broken"}]}).raise_for_status()
    received = http.post("/v1/queues/jobs/receive", json={"max": 1, "wait": 20}).raise_for_status().json()
    rejected = [
        {"receipt": each["receipt"], "action": "reject", "reason": "no total"}
        for each in received["messages"]
    ]
    http.post("/v1/queues/jobs/settlements", json={"settlements": rejected}).raise_for_status()
    http.post("/v1/queues/jobs/messages", json={"messages": [{"value": HOSTILE}]}).raise_for_status()
    delays = {"name": "reminders", "configs": {"delivery.delay": "true"}}
    http.post("/v1/topics", json=delays).raise_for_status()
    late = {"messages": [{"value": "later", "delay_ms": 3_600_000}]}
    http.post("/v1/topics/reminders/messages", json=late).raise_for_status()


@pytest.fixture
def page(browser: Any, broker: BrokerProcess) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    opened = context.new_page()
    opened.set_default_timeout(30_000)
    watch = Watch(opened)
    opened.watch = watch
    opened.base = f"http://127.0.0.1:{broker.http_port}/console"
    yield opened
    context.close()
    assert watch.complaints == []
