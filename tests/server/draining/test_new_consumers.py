"""Consumers that are new while a topic has partitions that go, on whole brokers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from test_draining_on_brokers import ORDERS, metadata, set_count

from penstock.errors import ErrorCode
from penstock.server.draining import draining
from support.eventually import eventually_async
from support.harness import Harness
from support.whole_brokers import Brokers, run

GROUPS, TRANSACTIONS = 0, 1


async def find(harness: Harness, kind: int = GROUPS) -> int:
    """Error code of a request for a coordinator by a new client."""
    fields = {"key_type": kind, "coordinator_keys": ["billing"]}
    response = await harness.ask(10, 4, fields, client_id="new")
    return int(response.coordinators[0].error_code)


async def found(harness: Harness, kind: int = GROUPS) -> bool:
    return await find(harness, kind) == ErrorCode.none


async def shrunk(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> list[Harness]:
    """Two brokers with a topic of which two partitions go, that ask each other nothing more by themselves."""
    monkeypatch.setattr(draining, "LOOK_SECONDS", 0.05)
    harnesses = [await brokers.start(1), await brokers.start(2)]
    await eventually_async(lambda: len(harnesses[0].context.image.brokers) == 2)
    await harnesses[0].create(ORDERS, 4, partition_drain_quiet_ms="600000")
    await eventually_async(lambda: found(harnesses[0]))
    await set_count(harnesses[0], 2)
    for harness in harnesses:
        state = harness.context.draining
        assert state is not None
        await eventually_async(lambda state=state: state.clients.others is not None)  # type: ignore[misc]
        harness.session.is_consumer = False
        harness.session.software = "apache-kafka-java 4.3.1"
    monkeypatch.setattr(draining, "LOOK_SECONDS", 600.0)
    return harnesses


def test_all_brokers_know_a_consumer_once_it_has_looked_for_its_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """COORDINATOR_NOT_AVAILABLE makes leaders of classic groups read their metadata before they assign partitions."""

    async def scenario(brokers: Brokers) -> None:
        first, second = await shrunk(brokers, monkeypatch)
        assert await metadata(second, "new") == 2
        assert await find(first) == ErrorCode.coordinator_not_available
        assert await metadata(second, "new") == 4
        assert [await find(first), await find(second)] == [ErrorCode.none] * 2

    run(tmp_path, scenario)


def test_client_that_does_not_retry_finds_its_coordinator_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, second = await shrunk(brokers, monkeypatch)
        first.session.software = "kafka-python 3.0.12"
        assert await find(first) == ErrorCode.none
        assert await metadata(second, "new") == 4

    run(tmp_path, scenario)


def test_transactional_producers_do_not_count_as_consumers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, _ = await shrunk(brokers, monkeypatch)
        assert await find(first, TRANSACTIONS) != ErrorCode.coordinator_not_available
        assert await metadata(first, "new") == 2

    run(tmp_path, scenario)


def test_unresponsive_broker_does_not_delay_new_consumers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, _ = await shrunk(brokers, monkeypatch)
        monkeypatch.setattr(draining, "MEETING_SECONDS", 0.05)
        monkeypatch.setattr(first.context.draining, "ask_others", lambda *_: asyncio.Event().wait())
        assert await find(first) == ErrorCode.coordinator_not_available
        assert await find(first) == ErrorCode.none

    run(tmp_path, scenario)
