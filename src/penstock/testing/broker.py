"""A broker that lives as long as a `with` block, with fresh data and free ports.

It uses page-cache durability and forms groups without delay, because tests need speed and no safety from
power loss.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.testing.process import BrokerProcess

QUICK = {
    "durability": "os",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.share.heartbeat.interval.ms": "200",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}


class Broker(BrokerProcess):
    """A test broker: `with Broker() as broker: Producer(broker.bootstrap)`. Settings are those of `penstock
    broker --set`.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="penstock-test-"))
        chosen = QUICK | dict(settings or {})
        super().__init__(self._directory, [f"{name}={value}" for name, value in chosen.items()])

    def close(self) -> None:
        """Stop the broker and remove its data. Raises AssertionError if the broker did not stop cleanly."""
        try:
            self.stop()
        finally:
            self.kill()
            shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"the end of the broker's log:\n{self.log_tail()}")
        self.close()


class AsyncBroker:
    """A test broker for `async with`, which returns a `Broker`."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._broker = Broker(settings)

    async def __aenter__(self) -> Broker:
        return await asyncio.to_thread(self._broker.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._broker.__exit__, kind, error, trace)
