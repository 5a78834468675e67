from __future__ import annotations

import pytest

from penstock.config import BrokerConfig
from penstock.gateway.http.client_limits import ClientLimits
from penstock.gateway.http.problems import Problem

CONFIG = BrokerConfig({"gateway.client.max.requests": "2", "gateway.client.max.request.rate": "3"})


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return round(self.seconds * 1000)


def test_open_requests_are_limited_per_client() -> None:
    limits = ClientLimits(CONFIG, Clock())
    limits.enter("a")
    limits.enter("a")
    with pytest.raises(Problem) as caught:
        limits.enter("a")
    assert (caught.value.status, caught.value.retriable) == (429, True)
    assert caught.value.headers["retry-after"] == "1"
    limits.enter("b")
    assert (limits.open_requests, limits.refusals) == (3, 1)
    limits.leave("a")
    limits.enter("a")


def test_request_rate_is_limited_per_second() -> None:
    clock = Clock()
    limits = ClientLimits(CONFIG, clock)
    for _ in range(3):
        limits.enter("a")
        limits.leave("a")
    with pytest.raises(Problem, match="in a second"):
        limits.enter("a")
    limits.enter("b")
    clock.seconds += 1
    limits.enter("a")


def test_disconnected_client_uses_no_memory() -> None:
    limits = ClientLimits(CONFIG, Clock())
    limits.enter("a")
    limits.leave("a")
    assert limits.open_requests == 0
    assert not limits._open


def test_body_memory_is_limited_and_half_of_it_per_client() -> None:
    limits = ClientLimits(BrokerConfig({"gateway.bodies.max.bytes": str(1 << 20)}), Clock())
    limits.hold("a", 1 << 19)
    with pytest.raises(Problem):
        limits.hold("a", 1)
    limits.hold("b", 1 << 18)
    limits.hold("c", 1 << 18)
    with pytest.raises(Problem):
        limits.hold("d", 1)
    limits.give_back("a", 1 << 19)
    limits.hold("d", 1)
