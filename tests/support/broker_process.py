"""What tests against a real broker process share; the process itself is the one that users' tests get."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.testing.process import BrokerProcess, answers, free_ports

__all__ = ["Address", "BrokerProcess", "MakeTopic", "StartBroker", "answers", "free_ports"]

MakeTopic = Callable[..., str]
"""Creates the topic of a test, with a partition count and topic configs, and returns its name."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where clients connect to."""

    bootstrap: str


class StartBroker(Protocol):
    """Starts a broker of the test's own, with fresh data."""

    def __call__(self, settings: Sequence[str] = ()) -> BrokerProcess: ...
