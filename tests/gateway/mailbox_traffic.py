"""Continuous traffic to mailboxes, and the check that each user received every message once and in order."""

from __future__ import annotations

import threading
import time

import httpx

PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.03
"""Seconds between two messages to a user."""


class Sender(threading.Thread):
    """Sends numbers to a user one after the other, each until it is acknowledged."""

    def __init__(self, user: str, urls: list[str], is_over: threading.Event) -> None:
        super().__init__()
        self.acknowledged: list[str] = []
        self.surprises: list[str] = []
        self._user, self._urls, self._is_over = user, urls, is_over

    def run(self) -> None:
        number = 0
        with httpx.Client(timeout=PATIENCE_SECONDS) as http:
            while not self._is_over.wait(PAUSE_SECONDS):
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
    """Reads all messages of a user, each page after the last message seen."""

    def __init__(self, user: str, urls: list[str]) -> None:
        super().__init__()
        self.seen: list[tuple[str, int]] = []
        self.wanted = -1
        """The expected number of messages, once it is known."""
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


class Traffic:
    """A sender and a receiver for each user, through all gateways in turn."""

    def __init__(self, users: list[str], urls: list[str]) -> None:
        self._is_over = threading.Event()
        self._senders = [Sender(user, urls, self._is_over) for user in users]
        self._receivers = [Receiver(user, urls) for user in users]

    def __enter__(self) -> Traffic:
        for thread in (*self._senders, *self._receivers):
            thread.start()
        return self

    def counts(self) -> list[int]:
        """The number of messages sent to each user."""
        return [len(sender.acknowledged) for sender in self._senders]

    def flows(self, since: list[int]) -> bool:
        """Whether every user was sent many more messages than then."""
        return all(now > before + 10 for now, before in zip(self.counts(), since, strict=True))

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for sender in self._senders:
            sender.join(PATIENCE_SECONDS)
        for sender, receiver in zip(self._senders, self._receivers, strict=True):
            receiver.wanted = len(sender.acknowledged)
        for receiver in self._receivers:
            receiver.join(PATIENCE_SECONDS)

    def check(self) -> None:
        """Check the messages, after the end of the traffic."""
        for sender, receiver in zip(self._senders, self._receivers, strict=True):
            assert not sender.surprises
            ids = [message_id for message_id, _ in receiver.seen]
            assert ids == sorted(set(ids)), "in order, and nothing twice"
            assert ids == sender.acknowledged, "all that was acknowledged, under the ids that were given"
            assert [number for _, number in receiver.seen] == list(range(len(ids)))
