"""A client far above its request quota, and the latency of a client at another address (H16)."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.broker_process import BrokerProcess
from support.stopwatch import Stopwatch

pytestmark = pytest.mark.usefixtures("watch")
RATE = 50
SETTINGS = (f"gateway.client.max.request.rate={RATE}",)
GREEDY_CONNECTIONS = 20
OTHERS_REQUESTS = 40
NOISE_SECONDS = 0.02
"""Noise of a busy machine on top of a p99 of a millisecond or two."""


class Greedy:
    def __init__(self, port: int) -> None:
        self.statuses: dict[int, int] = {}
        self._port = port
        self._is_over = threading.Event()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._ask) for _ in range(GREEDY_CONNECTIONS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join()

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=15)
        while not self._is_over.is_set():
            connection.request("GET", "/v1/brokers")
            answer = connection.getresponse()
            answer.read()
            self.statuses[answer.status] = self.statuses.get(answer.status, 0) + 1
            if answer.status == 429:
                assert answer.headers["retry-after"] == "1"
        connection.close()


def p99_of_another(port: int, pid: int) -> float:
    """The latency of a client at another address, which stays below its quota."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=15, source_address=("127.0.0.2", 0))
    taken = []
    stopwatch = Stopwatch(pid)
    for _ in range(OTHERS_REQUESTS):
        stopwatch.restart()
        connection.request("GET", "/v1/brokers")
        answer = connection.getresponse()
        answer.read()
        taken.append(stopwatch.seconds)
        assert answer.status == 200
        time.sleep(2 / RATE)
    connection.close()
    return sorted(taken)[int(0.99 * len(taken)) - 1]


def test_burst_above_the_quota_is_refused_and_delays_no_other_client(broker: BrokerProcess) -> None:
    quiet = p99_of_another(broker.http_port, broker.pid)
    greedy = Greedy(broker.http_port)
    began = time.monotonic()
    with greedy.at_work():
        beside = p99_of_another(broker.http_port, broker.pid)
    seconds = time.monotonic() - began
    assert beside <= 2 * quiet + NOISE_SECONDS
    assert set(greedy.statuses) == {200, 429}
    assert greedy.statuses[200] <= RATE * (seconds + 2)
    # A connection is refused once per second, not once per request.
    assert greedy.statuses[429] <= GREEDY_CONNECTIONS * (seconds + 2)
