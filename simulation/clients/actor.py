"""A simulated client as a scenario sees it: something with a name that takes one step after the other."""

from __future__ import annotations

from typing import Protocol


class Actor(Protocol):
    name: str

    async def step(self) -> None:
        """Send one or a few requests, and check the responses. NoAnswer and BrokerError end the step."""
