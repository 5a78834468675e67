"""Set-up of broker and gateway processes: the limit of open files, and garbage collection."""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import weakref
from collections.abc import Iterator

import pytest

from penstock.cli.broker_process import provide_open_files
from penstock.cli.process_setup import tune_garbage_collector
from penstock.clock import SystemClock
from penstock.config import BrokerConfig
from penstock.observability.log_lines import json_line
from penstock.observability.logs import Logger
from support.eventually import eventually_async

CONFIG = BrokerConfig(
    {"max.connections": "490", "gateway.max.connections": "10", "log.open.files.max": "300"}
)
NEEDED = 1_000


class Limits:
    """Limits of the process, and the requested limits."""

    def __init__(self, soft: int, hard: int, *, grants: bool = True) -> None:
        self.soft, self.hard, self.grants = soft, hard, grants

    def get(self, kind: int) -> tuple[int, int]:
        return self.soft, self.hard

    def set(self, kind: int, limits: tuple[int, int]) -> None:
        if not self.grants:
            raise ValueError("not allowed to raise maximum limit")
        self.soft, self.hard = limits


@pytest.mark.parametrize(
    ("limits", "soft", "warns"),
    [
        (Limits(256, 4_096), NEEDED, False),
        (Limits(256, resource.RLIM_INFINITY), NEEDED, False),
        (Limits(5_000, 5_000), 5_000, False),
        (Limits(256, 512), 512, True),
        (Limits(256, resource.RLIM_INFINITY, grants=False), 256, True),
    ],
)
def test_open_files_limit_is_raised_as_far_as_needed_and_granted(
    limits: Limits, soft: int, warns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", limits.get)
    monkeypatch.setattr(resource, "setrlimit", limits.set)
    lines: list[str] = []
    provide_open_files(CONFIG, Logger(SystemClock(), lines.append, json_line))
    assert limits.soft == soft
    assert [json.loads(line)["limit"] for line in lines] == ([soft] if warns else [])


class Node:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def ordinary_collector() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_garbage_cycle_is_freed_soon_without_allocations() -> None:
    async def drop_a_cycle() -> None:
        tune_garbage_collector()
        dropped = weakref.ref(Node())
        assert await eventually_async(lambda: dropped() is None, poll_s=0)

    asyncio.run(drop_a_cycle())


def test_long_lived_objects_are_collected_once() -> None:
    collected: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        collected.append(info["generation"])

    async def keep_many() -> None:
        tune_garbage_collector()
        gc.callbacks.append(note)
        kept = [[number] for number in range(100_000)]
        gc.callbacks.remove(note)
        assert kept

    asyncio.run(keep_many())
    assert set(collected) == {0}
