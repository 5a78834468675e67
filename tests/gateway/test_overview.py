"""The overview of the console: one computation for each sample of the cluster, however many tabs ask for it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.gateway.view import overview as overview_module
from penstock.gateway.view.cluster_view import ClusterView
from penstock.gateway.view.figures import LogFigures, TopicFigures
from penstock.gateway.view.overview import overview
from penstock.gateway.view.sampler import Sampler
from penstock.model import BrokerId
from support.manual_clock import ManualClock


def make_sampler() -> Sampler:
    view = ClusterView(cast(Any, SimpleNamespace()), ManualClock())
    for name in ("a", "b"):
        view.topics[name] = TopicFigures(name)
        view._take_log(BrokerId(1), (name, 0), (2, 5, 100))
    return Sampler(view, ManualClock(), cast(Any, SimpleNamespace()))


async def test_callers_of_one_sample_share_a_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = []
    compute = overview_module._compute

    def counted(*arguments: Any) -> dict[str, Any]:
        computed.append(arguments)
        return compute(*arguments)

    monkeypatch.setattr(overview_module, "_compute", counted)
    sampler = make_sampler()
    shown = await asyncio.gather(*(overview(sampler) for _ in range(10)))
    assert {(each["records"], each["bytes"]) for each in shown} == {(6, 200)}
    assert len(computed) == 1
    sampler.samples += 1
    await overview(sampler)
    assert len(computed) == 2


async def test_cancelled_caller_does_not_cancel_the_others() -> None:
    sampler = make_sampler()
    first, second = (asyncio.ensure_future(overview(sampler)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second)["topics"] == 2


def test_sums_of_a_topic_follow_its_logs() -> None:
    view = make_sampler().view
    assert view.log_totals("a") == (3, 5, 100)
    view._take_log(BrokerId(1), ("a", 1), LogFigures(BrokerId(1), 0, 4, 50)[1:])
    assert view.log_totals("a") == (7, 9, 150)
    view._take_log(BrokerId(1), ("a", 0), None)
    assert view.log_totals("a") == (4, 4, 50)
    view._forget(BrokerId(1), "logs")
    assert view.log_totals("a") == (0, 0, 0)
    assert view.log_totals("missing") == (0, 0, 0)
