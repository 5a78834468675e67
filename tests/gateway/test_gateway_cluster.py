"""Two gateways in front of three brokers, and leaders that are killed in the midst of it.

Nothing that was acknowledged is lost, and a reader that passes on the last id sees nothing twice and all in order.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import httpx
import pytest
from gateway_process import GatewayProcess

from cluster_processes import ClusterProcesses

pytestmark = [pytest.mark.process, pytest.mark.slow]
SETTINGS = ("gateway.enable=false", "default.replication.factor=3")
USERS = [f"user-{number}" for number in range(4)]
PATIENCE_SECONDS = 60.0


class Sender(threading.Thread):
    """Sends numbers to a user, each until it is acknowledged, one after the other."""

    def __init__(self, user: str, urls: list[str], is_over: threading.Event) -> None:
        super().__init__()
        self.acknowledged: list[str] = []
        self.surprises: list[str] = []
        self._user, self._urls, self._is_over = user, urls, is_over

    def run(self) -> None:
        number = 0
        with httpx.Client(timeout=PATIENCE_SECONDS) as http:
            while not self._is_over.is_set():
                self._send(http, number)
                number += 1

    def _send(self, http: httpx.Client, number: int) -> None:
        body = {"from_user": "x", "to_user": self._user, "message": str(number)}
        attempt = 0
        while True:
            url = self._urls[(number + attempt) % len(self._urls)]
            answer = http.post(
                f"{url}/send", json=body, headers={"idempotency-key": f"{self._user}-{number}"}
            )
            if answer.status_code == 200:
                self.acknowledged.append(answer.json()["message_id"])
                return
            if answer.status_code not in (503, 504) or not answer.json()["retriable"]:
                self.surprises.append(answer.text)
            attempt += 1
            time.sleep(0.05)


class Receiver(threading.Thread):
    """Reads all of a user's messages, each page after the last message seen."""

    def __init__(self, user: str, urls: list[str]) -> None:
        super().__init__()
        self.seen: list[tuple[str, int]] = []
        self.wanted = -1
        """How many there are, once that is known."""
        self._user, self._urls = user, urls

    def run(self) -> None:
        deadline = time.monotonic() + 3 * PATIENCE_SECONDS
        turn = 0
        with httpx.Client(timeout=PATIENCE_SECONDS) as http:
            while len(self.seen) != self.wanted and time.monotonic() < deadline:
                parameters = {"user_id": self._user, "wait": "0.5", "limit": "7"}
                if self.seen:
                    parameters["last_message_id"] = self.seen[-1][0]
                answer = http.get(f"{self._urls[turn % len(self._urls)]}/receive", params=parameters)
                turn += 1
                if answer.status_code == 200:
                    found = answer.json()["messages"]
                    self.seen += [(each["message_id"], int(each["message"])) for each in found]


def test_nothing_acknowledged_is_lost_when_leaders_are_killed(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path, 3, SETTINGS)
    try:
        cluster.start()
        settings = ("mailbox.num.partitions=3", "gateway.delivery.timeout.ms=3000")
        with (
            GatewayProcess(tmp_path, cluster.bootstrap, settings) as one,
            GatewayProcess(tmp_path, cluster.bootstrap, settings) as other,
        ):
            _run(cluster, [one.url, other.url])
            assert (one.stop(), other.stop()) == (0, 0)
    finally:
        cluster.close()


def _run(cluster: ClusterProcesses, urls: list[str]) -> None:
    is_over = threading.Event()
    senders = [Sender(user, urls, is_over) for user in USERS]
    receivers = [Receiver(user, urls) for user in USERS]
    for thread in (*senders, *receivers):
        thread.start()
    try:
        cluster.until(lambda: all(len(sender.acknowledged) > 20 for sender in senders), "messages flow")
        for partition in (0, 1):
            victim = cluster.leader("mailbox", partition)
            cluster.kill_brokers([victim])
            counts = [len(sender.acknowledged) for sender in senders]
            cluster.until(
                lambda counts=counts: all(
                    len(sender.acknowledged) > count + 20
                    for sender, count in zip(senders, counts, strict=True)
                ),
                "messages flow again",
            )
            cluster.start_brokers([victim])
            cluster.wait_until_healed()
    finally:
        is_over.set()
        for sender in senders:
            sender.join(PATIENCE_SECONDS)
        for sender, receiver in zip(senders, receivers, strict=True):
            receiver.wanted = len(sender.acknowledged)
        for receiver in receivers:
            receiver.join(PATIENCE_SECONDS)
    for sender, receiver in zip(senders, receivers, strict=True):
        assert not sender.surprises
        ids = [message_id for message_id, _ in receiver.seen]
        assert ids == sorted(set(ids)), "in order, and nothing twice"
        assert ids == sender.acknowledged, "all that was acknowledged, under the ids that were given"
        assert [number for _, number in receiver.seen] == list(range(len(ids)))
