"""Pictures of the console for docs/console.md: starts a broker, fills it and opens pages in Chromium.

Run by `make screenshots`; PENSTOCK_CHROMIUM may name the browser.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import httpx
from browser import open_browser

from support.broker_process import BrokerProcess, wait_for_http

PICTURES = {
    "console-overview": "#/",
    "console-topic": "#/topics/orders",
    "console-group": "#/groups/billing",
    "console-topics": "#/topics",
    "console-queue": "#/queues/email-jobs?tab=dead-letters",
}
TOPICS = (
    "orders",
    "payments",
    "clicks",
    "shipments",
    "inventory.changes",
    "audit.log",
    "email.outbox",
    "sessions",
)
SECONDS = 45


def message(number: int) -> dict[str, Any]:
    order = {
        "id": number,
        "customer": {"id": number % 500, "name": random.choice(("Ann", "Bob", "Cleo", "Dmitri"))},
        "total": round(random.random() * 200, 2),
        "items": [{"sku": f"P-{random.randint(100, 999)}", "count": random.randint(1, 4)}],
        "state": random.choice(("new", "paid", "sent")),
    }
    return {"key": f"customer-{number % 500}", "value_json": order, "headers": {"trace": f"{number:016x}"}}


def fill(http: httpx.Client) -> None:
    for name in (*TOPICS, *(f"metrics.host-{number:02d}" for number in range(30))):
        http.post("/v1/topics", json={"name": name, "partitions": 3}).raise_for_status()
    for name in TOPICS[:5]:
        http.post(f"/v1/topics/{name}/messages", json={"messages": [message(each) for each in range(2_000)]})
    make_queue(http)
    for group, topic in (("billing", "orders"), ("fraud-check", "payments"), ("analytics", "clicks")):
        http.post(f"/v1/groups/{group}/reset", json={"topic": topic, "to": "latest"})


def make_queue(http: httpx.Client) -> None:
    """A queue with messages that wait, and with dead letters."""
    jobs = {"name": "email-jobs", "partitions": 1, "dead_letter": "email-jobs-dead", "lock_s": 60}
    http.post("/v1/queues", json=jobs).raise_for_status()
    bodies = [{"key": f"customer-{each}", "value": f"mail for customer-{each}"} for each in range(40)]
    http.post("/v1/queues/email-jobs/messages", json={"messages": bodies}).raise_for_status()
    received = (
        http.post("/v1/queues/email-jobs/receive", json={"max": 12, "wait": 20}).raise_for_status().json()
    )
    reasons = ("mailbox full", "no such domain", "template has no subject")
    rejected = [
        {"receipt": each["receipt"], "action": "reject", "reason": random.choice(reasons)}
        for each in received["messages"]
    ]
    http.post("/v1/queues/email-jobs/settlements", json={"settlements": rejected}).raise_for_status()


def write(port: int, stopped: threading.Event) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
        while not stopped.wait(0.5):
            for name, count in (("orders", 20), ("clicks", 60), ("payments", 8)):
                some = [message(random.randrange(10_000)) for _ in range(random.randint(count // 2, count))]
                http.post(f"/v1/topics/{name}/messages", json={"messages": some})


def take(port: int, folder: Path) -> None:
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 760})
        page.goto(f"http://127.0.0.1:{port}/console")
        page.wait_for_timeout(SECONDS * 1000)
        for name, path in PICTURES.items():
            page.goto(f"http://127.0.0.1:{port}/console{path}")
            page.wait_for_timeout(2_500)
            page.screenshot(path=str(folder / f"{name}.png"))
        dark = browser.new_page(viewport={"width": 1280, "height": 760}, color_scheme="dark")
        dark.goto(f"http://127.0.0.1:{port}/console")
        dark.wait_for_timeout(3_000)
        dark.screenshot(path=str(folder / "console-dark.png"))


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data:
        broker = BrokerProcess(Path(data), ("durability=os",))
        broker.start()
        stopped = threading.Event()
        try:
            wait_for_http(broker.http_port)
            with httpx.Client(base_url=f"http://127.0.0.1:{broker.http_port}", timeout=60) as http:
                fill(http)
            writer = threading.Thread(target=write, args=(broker.http_port, stopped))
            writer.start()
            take(broker.http_port, folder)
            stopped.set()
            writer.join()
        finally:
            stopped.set()
            broker.kill()


if __name__ == "__main__":
    main()
