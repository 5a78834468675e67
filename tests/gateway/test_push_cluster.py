"""Streams from a cluster whose brokers are killed: acknowledged messages arrive, once for a client that
resumes by id.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from support.cluster_processes import ClusterProcesses

MESSAGES = 300
PARTITIONS = 3
KILL_AT = 100
WAIT_SECONDS = 60.0
EVENTS = "/v1/topics/orders/events"
MAIL_BEFORE = {"from_user": "ann", "to_user": "bob", "message": "before"}


class Gateways:
    """The gateways of all brokers, the next one where one does not respond."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        self._ports = [broker.http_port for broker in cluster.brokers.values()]
        self._turn = 0
        self.http = httpx.Client(timeout=30)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._ports[self._turn % len(self._ports)]}"

    def go_on(self) -> None:
        self._turn += 1


class Reader(threading.Thread):
    """Reads until it is stopped; reconnects with the last id when its stream ends."""

    def __init__(self, cluster: ClusterProcesses, path: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self._gateways = Gateways(cluster)
        self._path = path
        self._is_over = threading.Event()

    def run(self) -> None:
        with self._gateways.http:
            self._read()

    def _read(self) -> None:
        last_id = ""
        while not self._is_over.is_set():
            headers = {"last-event-id": last_id} if last_id else {}
            with suppress(httpx.HTTPError):
                for event_id, message in self._events(headers):
                    last_id = event_id
                    self.seen.append(message["value"] if "value" in message else message["message"])
                    if self._is_over.is_set():
                        return
            self._gateways.go_on()
            self._is_over.wait(0.1)

    def stop(self) -> None:
        self._is_over.set()

    def _events(self, headers: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
        url = self._gateways.url + self._path
        with self._gateways.http.stream("GET", url, headers=headers) as response:
            if response.status_code != 200:
                return
            event_id = ""
            for line in response.iter_lines():
                if self._is_over.is_set():
                    return
                if line.startswith("id: "):
                    event_id = line[4:]
                elif line.startswith("data: ") and event_id:
                    yield event_id, json.loads(line[6:])


def post(gateways: Gateways, path: str, body: object, headers: dict[str, str] | None = None) -> bool:
    """Whether the message was acknowledged."""
    try:
        answer = gateways.http.post(gateways.url + path, json=body, headers=headers)
    except httpx.HTTPError:
        gateways.go_on()
        return False
    if answer.status_code >= 500:
        gateways.go_on()
    return answer.status_code < 300


def send(gateways: Gateways, number: int, sent: list[str]) -> None:
    text = str(number)
    body = {"messages": [{"value": text, "partition": number % PARTITIONS}]}
    if post(gateways, "/v1/topics/orders/messages", body):
        sent.append(text)


def send_mail(gateways: Gateways, number: int) -> None:
    """Send until the message is acknowledged; its idempotency key stores it once."""
    body = {"from_user": "ann", "to_user": "bob", "message": str(number)}
    for _ in range(50):
        if post(gateways, "/send", body, {"idempotency-key": f"mail-{number}"}):
            return
        threading.Event().wait(0.1)
    raise AssertionError("it cannot be sent")


@pytest.mark.usefixtures("starts_clusters")
def test_streams_deliver_acknowledged_messages_despite_kills(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path, 3)
    readers: list[Reader] = []
    gateways = Gateways(cluster)
    try:
        cluster.start()
        topic = {"name": "orders", "partitions": PARTITIONS}
        cluster.until(lambda: post(gateways, "/v1/topics", topic), "the topic is made")
        cluster.until(lambda: post(gateways, "/send", MAIL_BEFORE), "there are mailboxes")
        cluster.wait_until_healed()
        single = Reader(cluster, f"{EVENTS}?from=earliest")
        grouped = Reader(cluster, f"{EVENTS}?group=readers&window=50")
        mail = Reader(cluster, "/receive/events?user_id=bob")
        readers += (single, grouped, mail)
        for reader in readers:
            reader.start()
        sent: list[str] = []
        for number in range(MESSAGES):
            send(gateways, number, sent)
            if number % 10 == 0:
                send_mail(gateways, number)
            if number == KILL_AT:
                cluster.kill_brokers([cluster.leader("orders", 0)])
        assert len(sent) > MESSAGES * 0.8
        expected_mail = [str(number) for number in range(0, MESSAGES, 10)]
        cluster.until(lambda: set(sent) <= set(single.seen), "the reader of its own has all", WAIT_SECONDS)
        cluster.until(lambda: set(sent) <= set(grouped.seen), "the group has all", WAIT_SECONDS)
        cluster.until(lambda: len(mail.seen) >= len(expected_mail) + 1, "the user has all", WAIT_SECONDS)
        assert len(single.seen) == len(set(single.seen))
        for partition in range(PARTITIONS):
            mine = [int(text) for text in single.seen if int(text) % PARTITIONS == partition]
            assert mine == sorted(mine)
        assert mail.seen == ["before", *expected_mail]
    finally:
        for reader in readers:
            reader.stop()
        cluster.close()
        gateways.http.close()
        for reader in readers:
            reader.join()
