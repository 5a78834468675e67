"""`Admin().pipelines` and its async form against a real broker."""

from __future__ import annotations

import asyncio

import pytest

from penstock import Admin, AsyncAdmin, InvalidSetting, PipelineUnknown
from penstock.testing.process import BrokerProcess

DEFINITION = {
    "name": "py",
    "source": {"topics": ["orders"]},
    "target": {"table": "/t"},
    "schedule": {"every": "1m"},
}


def test_pipelines_are_declared_paused_and_deleted(penstock_session_broker: BrokerProcess) -> None:
    admin = Admin(penstock_session_broker.bootstrap)
    made = admin.pipelines.apply(DEFINITION)
    assert (made.state, made.definition["target"]) == ("waiting for a supervisor", {"table": "/t"})
    assert admin.pipelines.pause("py").state == "paused"
    assert not admin.pipelines.resume("py").paused
    admin.pipelines.run("py")
    assert admin.pipelines.logs("py") == []
    with pytest.raises(InvalidSetting, match="/schedule/every: 'soon' is not a duration"):
        admin.pipelines.apply({**DEFINITION, "schedule": {"every": "soon"}})
    admin.pipelines.delete("py")
    with pytest.raises(PipelineUnknown):
        admin.pipelines.pause("py")


def test_async_admin_declares_pauses_and_deletes_pipelines(penstock_session_broker: BrokerProcess) -> None:
    async def work() -> None:
        async with AsyncAdmin(penstock_session_broker.bootstrap) as admin:
            await admin.pipelines.apply(DEFINITION)
            assert [each.name for each in await admin.pipelines.list()] == ["py"]
            await admin.pipelines.delete("py")

    asyncio.run(work())
