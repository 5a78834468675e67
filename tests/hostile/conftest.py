"""One broker per module for all its tests, and a watch over each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from watch import INNOCENT_TOPIC, Watch, create_topic

from support import raw
from support.broker_process import BrokerProcess, wait_for_http

BASE_SETTINGS = ("auto.create.topics.enable=false",)


@pytest.fixture(scope="module")
def broker(
    starts_processes: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """Broker of the module, with the settings in its `SETTINGS`."""
    settings = (*BASE_SETTINGS, *getattr(request.module, "SETTINGS", ()))
    process = BrokerProcess(tmp_path_factory.mktemp("hostile"), settings)
    process.start()
    try:
        prepare(process)
        yield process
        process.stop()
    finally:
        process.kill()


def prepare(process: BrokerProcess) -> None:
    """Create the topic of the innocent client, and wait for HTTP, which starts a little later."""
    with raw.RawClient(process.port) as client:
        assert create_topic(client, INNOCENT_TOPIC).error_code == 0
    wait_for_http(process.http_port)


@pytest.fixture
def watch(broker: BrokerProcess) -> Iterator[Watch]:
    watching = Watch(broker)
    yield watching
    watching.finish()
