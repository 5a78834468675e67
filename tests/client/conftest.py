"""What the client's tests share: a broker for all of them, and topics of their own."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from penstock import Admin
from penstock.testing import Broker

MakeTopic = Callable[..., str]
EXTERNAL_BOOTSTRAP = os.environ.get("PENSTOCK_TEST_BOOTSTRAP")
"""Another server to test the client on, as in tests/conftest.py."""


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    if EXTERNAL_BOOTSTRAP:
        return EXTERNAL_BOOTSTRAP
    broker: Broker = request.getfixturevalue("penstock_session_broker")
    return broker.bootstrap


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> Admin:
    return Admin(bootstrap)


@pytest.fixture
def make_topic(admin: Admin, topic_name: str) -> MakeTopic:
    def make(partitions: int = 1, **config: str) -> str:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        admin.topics.create(topic_name, partitions=partitions, config=settings)
        return topic_name

    return make
