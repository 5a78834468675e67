from __future__ import annotations

import asyncio

import pytest

from penstock.internal_client import slices
from penstock.internal_client.slices import collect


async def test_other_callbacks_run_between_two_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)
    seen: list[int] = []
    work = asyncio.ensure_future(collect(range(100)))
    while not work.done():
        seen.append(len(seen))
        await asyncio.sleep(0)
    assert work.result() == list(range(100))
    assert len(seen) >= 100


async def test_failure_of_a_step_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await collect(1 // number for number in (1, 0))
