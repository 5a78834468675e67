"""What the client's tests share: a broker for all of them, and topics of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock import Admin
from penstock.testing import Broker

MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def bootstrap(penstock_session_broker: Broker) -> str:
    return penstock_session_broker.bootstrap


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
