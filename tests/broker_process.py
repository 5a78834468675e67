"""What tests against a real broker process share; the process itself is the one that users' tests get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.testing.process import BrokerProcess, answers, free_ports

__all__ = ["Address", "BrokerProcess", "StartBroker", "answers", "free_ports"]


@dataclass(frozen=True, slots=True)
class Address:
    """Where clients connect to."""

    bootstrap: str


class StartBroker(Protocol):
    """Starts a broker of the test's own, with fresh data."""

    def __call__(self, settings: Sequence[str] = ()) -> BrokerProcess: ...
