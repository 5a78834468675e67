"""Helpers for tests against a broker process. The process is the one of the public package
`penstock.testing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Protocol

from penstock.testing.process import BrokerProcess, answers, free_ports
from support.eventually import eventually

__all__ = ["Address", "BrokerProcess", "MakeTopic", "StartBroker", "answers", "free_ports", "wait_for_http"]

MakeTopic = Callable[..., str]
"""Creates the topic of a test, with a partition count and topic configs, and returns its name."""


@dataclass(frozen=True, slots=True)
class Address:
    """Bootstrap address of a broker or cluster."""

    bootstrap: str


class StartBroker(Protocol):
    """Function that starts a broker with fresh data for one test."""

    def __call__(self, settings: Sequence[str] = ()) -> BrokerProcess: ...


def wait_for_http(port: int) -> None:
    """Wait until a broker responds to HTTP requests, which it does a moment after it serves Kafka clients."""

    def has_response() -> bool:
        with closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
            connection.request("GET", "/health")
            return connection.getresponse().status > 0

    eventually(has_response, f"HTTP is served at port {port}", ignoring=(OSError, HTTPException))
