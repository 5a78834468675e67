"""Supervision of child processes, and reports between them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from penstock.cli.processes import supervisor as module
from penstock.cli.processes.sibling_reports import SocketSiblingReports, together
from penstock.cli.processes.supervisor import ChildEnded, ProcessSupervisor
from penstock.gateway.health import BrokerState, Health, PartitionDamage
from penstock.model import TopicPartition
from penstock.observability.alarms import Alarm, AlarmKind
from support.eventually import eventually_async

SERVES = "import os, sys; os.write(int(sys.argv[1]), b's'); os.read(int(sys.argv[1]), 1)"
GIVES_UP = "raise SystemExit(2)"
IGNORES_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SERVES

pytestmark = pytest.mark.usefixtures("starts_processes")


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESTART_SECONDS", 0.05)


def running(*programs: str) -> tuple[ProcessSupervisor, list[tuple[int, int]]]:
    ended: list[tuple[int, int]] = []
    supervisor = ProcessSupervisor(
        lambda number, descriptor: [sys.executable, "-c", programs[number], str(descriptor)],
        on_end=lambda number, code: ended.append((number, code)),
    )
    return supervisor, ended


async def test_killed_child_is_started_again() -> None:
    supervisor, ended = running(SERVES, SERVES)
    await supervisor.start([0, 1])
    before = dict(supervisor.pids)
    os.kill(before[1], signal.SIGKILL)
    await eventually_async(lambda: supervisor.pids.get(1, before[1]) != before[1])
    assert supervisor.pids[0] == before[0]
    assert ended == [(1, -signal.SIGKILL)]
    await supervisor.stop_all()
    assert supervisor.pids == {}


async def test_child_that_gives_up_at_first_start_is_reported() -> None:
    supervisor, _ = running(SERVES, GIVES_UP)
    with pytest.raises(ChildEnded) as caught:
        await supervisor.start([0, 1])
    assert (caught.value.number, caught.value.code) == (1, 2)
    await supervisor.stop_all()
    assert supervisor.pids == {}


async def test_one_child_is_stopped_and_stays_stopped() -> None:
    supervisor, ended = running(SERVES, SERVES)
    await supervisor.start([0, 1])
    await supervisor.stop([1])
    await asyncio.sleep(2 * module.RESTART_SECONDS)
    assert list(supervisor.pids) == [0]
    assert ended == []
    await supervisor.stop_all()


async def test_child_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS", 0.2)
    supervisor, _ = running(IGNORES_SIGTERM)
    await supervisor.start([0])
    await supervisor.stop_all()
    assert supervisor.pids == {}


async def test_health_of_siblings_is_one_health(tmp_path: Path) -> None:
    damage = PartitionDamage(TopicPartition("t", 1), 5, 9, "crc")
    alarm = Alarm(AlarmKind.DAMAGED_LOG, TopicPartition("t", 1), "detail", 17)
    second = Health(BrokerState.SERVING, ("t-1",), True, (damage,), (alarm,))

    async def no_metrics() -> bytes:
        return b""

    one, two = SocketSiblingReports(tmp_path / "1"), SocketSiblingReports(tmp_path / "2")
    (tmp_path / "1").touch()
    await two.start(no_metrics, lambda: second)
    assert two.health().state is BrokerState.STARTING
    await one.start(no_metrics, lambda: Health(BrokerState.SERVING))
    assert one.health() == second
    two.close()
    await eventually_async(lambda: one.health().state is BrokerState.STARTING)
    one.close()


def test_siblings_serve_when_all_serve() -> None:
    serving = Health(BrokerState.SERVING)
    assert together([serving, serving]).is_ok
    assert not together([serving, Health(BrokerState.STOPPING)]).is_ok
