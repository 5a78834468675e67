from __future__ import annotations

import asyncio

from penstock.cluster.watches import Watches


def test_stopped_watch_drops_pending_events() -> None:
    async def scenario() -> None:
        watches = Watches()
        heard: list[str] = []
        stop = watches.add("/a", lambda: heard.append("stopped"))
        watches.add("/a", lambda: heard.append("kept"))
        watches.notify(["/a"])
        stop()
        await asyncio.sleep(0)
        assert heard == ["kept"]

    asyncio.run(scenario())


def test_a_callback_never_runs_inside_the_call_that_made_the_change() -> None:
    async def scenario() -> None:
        watches = Watches()
        heard: list[str] = []
        watches.add("/a", lambda: heard.append("a"))
        watches.notify(["/a", "/b"])
        assert heard == []
        await asyncio.sleep(0)
        assert heard == ["a"]

    asyncio.run(scenario())
