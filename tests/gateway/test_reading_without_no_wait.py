"""Fetches on Python builds without `os.RWF_NOWAIT`, such as python-build-standalone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from push_stage import Stage, on_stage

from support.harness import Harness
from support.whole_brokers import Brokers

ORDERS = "orders"


def test_small_and_large_fetches_work_without_the_no_wait_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "RWF_NOWAIT", raising=False)

    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await Harness(brokers.running[1]).create(ORDERS)
        await stage.send(ORDERS, "small", "x" * 300_000)
        answer = await stage.http.get(f"/v1/topics/{ORDERS}/messages", params={"partition": 0})
        assert [len(each["value"]) for each in answer.json()["messages"]] == [5, 300_000]

    on_stage(tmp_path, scenario)
