"""Journeys of a console user on large or failing clusters: 10,000 topics, a million messages, the death of a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from browser import Watch
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support.broker_process import BrokerProcess, wait_for_http
from support.cluster_processes import ClusterProcesses

TOPICS = 10_000
MESSAGES = 1_000_000
SOUGHT = 271_828
CREATE_SECONDS = 240


@pytest.fixture(scope="module")
def large(
    browser: Any, starts_processes: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("large"), ("durability=os",))
    process.start()
    try:
        wait_for_http(process.http_port)
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        names = [f"app.{number % 97:02d}.events-{number:05d}" for number in range(TOPICS)]
        for first in range(0, TOPICS, 1_000):
            new = [NewTopic(name, 1, 1) for name in names[first : first + 1_000]]
            created = admin.create_topics(
                new, request_timeout=CREATE_SECONDS, operation_timeout=CREATE_SECONDS
            )
            for future in created.values():
                future.result()
        yield process
    finally:
        process.kill()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    """Open pages that must not complain, but for the connections that a dead broker breaks."""
    contexts = []
    watches = []

    def opened(http_port: int) -> Any:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.watch = Watch(page)
        watches.append(page.watch)
        page.base = f"http://127.0.0.1:{http_port}/console"
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [each.complaints for each in watches] == [[] for _ in watches]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_topic_is_found_among_ten_thousand(open_page: Any, large: BrokerProcess) -> None:
    page = open_page(large.http_port)
    page.goto(page.base + "#/topics")
    page.get_by_text("10,000 topics").first.wait_for()
    assert page.locator("tbody tr").count() < 60, "the table is windowed"
    page.keyboard.press("/")
    page.keyboard.type("events-09731")
    page.get_by_role("link", name="events-09731").click()
    page.get_by_text("There are no messages.").wait_for()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_message_of_a_million_is_found(open_page: Any, large: BrokerProcess) -> None:
    producer = Producer(
        {"bootstrap.servers": large.bootstrap, "linger.ms": 50, "queue.buffering.max.messages": MESSAGES}
    )
    for number in range(MESSAGES):
        value = json.dumps({"id": number, "user": {"id": f"u{number}"}})
        producer.produce("app.00.events-00000", value)
    assert producer.flush(CREATE_SECONDS) == 0
    page = open_page(large.http_port)
    page.goto(page.base + f"#/topics/app.00.events-00000?from=search&q=json%3A%24.id%3D{SOUGHT}")
    page.get_by_text("1 found in 1,000,000 messages").wait_for()
    assert "penstock search app.00.events-00000 --json-path '$.id=271828'" in page.content().replace(
        "&#39;", "'"
    )
    page.locator("tbody a").first.click()
    page.get_by_text(f'"u{SOUGHT}"').wait_for()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_console_survives_the_death_of_a_broker(
    open_page: Any, starts_processes: None, tmp_path: Path
) -> None:
    cluster = ClusterProcesses(tmp_path, 3, ("default.replication.factor=3", "min.insync.replicas=2"))
    cluster.start()
    try:
        first = cluster.brokers[1]
        wait_for_http(first.http_port)
        base = f"http://127.0.0.1:{first.http_port}"
        httpx.post(
            f"{base}/v1/topics", json={"name": "orders", "partitions": 3}, timeout=60
        ).raise_for_status()
        page = open_page(first.http_port)
        page.watch.allowed = ("Failed to load resource", "ERR_", "EventSource")
        page.goto(page.base)
        page.get_by_text("All is well").wait_for()
        cluster.brokers[2].kill()
        page.get_by_text("All is well").wait_for(state="detached")
        page.goto(page.base + "#/topics/orders")
        page.get_by_role("button", name="Send", exact=True).click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Value", exact=True).fill("sent while a broker is down")
        dialog.get_by_role("button", name="Send").click()
        page.get_by_text("sent while a broker is down").first.wait_for()
        cluster.brokers[2].start()
        page.goto(page.base)
        page.get_by_text("All is well").wait_for()
    finally:
        cluster.close()
