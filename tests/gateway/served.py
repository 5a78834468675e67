"""A broker process with its gateway, for tests that use it like a user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from support.broker_process import BrokerProcess, wait_for_http

PATIENCE_SECONDS = 30.0


@contextmanager
def serving(directory: Path, settings: Sequence[str] = ()) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(directory, ("mailbox.num.partitions=3", *settings))
    broker.start()
    try:
        wait_for_http(broker.http_port)
        yield broker
        broker.stop()
    finally:
        broker.kill()


def client_of(broker: BrokerProcess) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{broker.http_port}", timeout=PATIENCE_SECONDS)
