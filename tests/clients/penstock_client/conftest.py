"""Fixtures of the client tests: one shared broker, and a topic for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Admin
from penstock.testing.broker import QUICK
from support.broker_process import BrokerProcess, MakeTopic
from support.cluster_processes import CLUSTER_SIZE, ClusterProcesses, serving

QUICK_SETTINGS = [f"{name}={value}" for name, value in QUICK.items()]
EXTERNAL_BOOTSTRAP = os.environ.get("PENSTOCK_TEST_BOOTSTRAP")
"""Another server to run the client tests against, see tests/conftest.py."""


if CLUSTER_SIZE:

    @pytest.fixture
    def penstock_broker(starts_processes: None, tmp_path: Path) -> Iterator[BrokerProcess | ClusterProcesses]:
        with serving(tmp_path, QUICK_SETTINGS) as server:
            yield server

    @pytest.fixture(scope="session")
    def penstock_session_broker(
        starts_processes: None,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Iterator[BrokerProcess | ClusterProcesses]:
        with serving(tmp_path_factory.mktemp("cluster"), QUICK_SETTINGS) as server:
            yield server


@pytest.fixture(scope="session")
def bootstrap(starts_processes: None, request: pytest.FixtureRequest) -> str:
    if EXTERNAL_BOOTSTRAP:
        return EXTERNAL_BOOTSTRAP
    broker: BrokerProcess | ClusterProcesses = request.getfixturevalue("penstock_session_broker")
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
