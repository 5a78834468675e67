from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from penstock.cluster.coordination import NoNode, SessionExpired, SessionState, StoreUnreachable
from penstock.cluster.memory import Faults, MemoryEnsemble
from penstock.errors import UnknownOutcome
from simulation.machine.loop import new_loop


def test_clients_share_one_tree_and_watch_each_other() -> None:
    async def scenario() -> None:
        ensemble = MemoryEnsemble()
        one, two = ensemble.client(), ensemble.client()
        await one.start()
        await two.start()
        heard: list[str] = []
        two.watch("/a", lambda: heard.append("two"))
        await one.create("/a", b"from one")
        assert (await two.get("/a")).data == b"from one"
        assert heard == ["two"]

    asyncio.run(scenario())


def test_expired_session_removes_ephemeral_nodes_and_fails_calls() -> None:
    async def scenario() -> None:
        ensemble = MemoryEnsemble()
        one, two = ensemble.client(), ensemble.client()
        await one.start()
        await two.start()
        states: list[SessionState] = []
        one.on_session(states.append)
        await one.create("/broker", ephemeral=True)
        heard: list[str] = []
        two.watch("/broker", lambda: heard.append("gone"))
        one.expire()
        assert states == [SessionState.EXPIRED]
        assert await two.children("/") == []
        await asyncio.sleep(0)
        assert heard == ["gone"]
        for call in (one.get("/"), one.children("/"), one.create("/x"), one.get_many(["/"])):
            with pytest.raises(SessionExpired):
                await call

    asyncio.run(scenario())


def test_a_new_session_does_not_own_the_last_ones_nodes() -> None:
    async def scenario() -> None:
        ensemble = MemoryEnsemble()
        store = ensemble.client()
        await store.start()
        store.expire()
        await store.start()
        await store.create("/broker", ephemeral=True)
        await store.close()
        assert ensemble.tree.children("/") == []

    asyncio.run(scenario())


@pytest.mark.parametrize(("fault", "applied"), [("unknown_not_applied", False), ("unknown_applied", True)])
def test_unknown_outcome_may_be_applied_or_not(fault: str, applied: bool) -> None:
    async def scenario() -> None:
        ensemble = MemoryEnsemble()
        store = ensemble.client(Faults(Random(1), **{fault: 1.0}))
        await store.start()
        with pytest.raises(UnknownOutcome):
            await store.create("/a")
        assert await store.children("/") == (["a"] if applied else [])

    asyncio.run(scenario())


def test_the_same_seed_gives_the_same_faults() -> None:
    async def scenario(seed: int) -> list[bool]:
        store = MemoryEnsemble().client(Faults(Random(seed), unknown_not_applied=0.3, unknown_applied=0.3))
        await store.start()
        outcomes = []
        for number in range(50):
            try:
                await store.create(f"/{number}")
                outcomes.append(True)
            except UnknownOutcome:
                outcomes.append(False)
        return outcomes

    first = asyncio.run(scenario(7))
    assert first == asyncio.run(scenario(7))
    assert first != asyncio.run(scenario(8))
    assert {True, False} == set(first)


def test_write_in_flight_at_session_end_is_not_applied() -> None:
    async def scenario() -> None:
        ensemble = MemoryEnsemble()
        store = ensemble.client()
        await store.start()
        write = asyncio.ensure_future(store.create("/late"))
        await asyncio.sleep(0)  # the write is in flight
        store.expire()
        with pytest.raises(SessionExpired):
            await write
        assert ensemble.tree.children("/") == []

    asyncio.run(scenario())


def in_virtual_time(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = new_loop()
    try:
        loop.run_until_complete(scenario())
        assert loop.unhandled == []
    finally:
        loop.close()


def test_partitioned_broker_learns_of_expired_session_on_reconnect() -> None:
    async def scenario() -> None:
        ensemble = MemoryEnsemble()
        one, two = ensemble.client(session_timeout_s=2.0), ensemble.client()
        await one.start()
        await two.start()
        states: list[SessionState] = []
        one.on_session(states.append)
        await one.create("/broker", ephemeral=True)
        one.cut_off()
        await asyncio.sleep(1.9)
        assert await two.children("/") == ["broker"]
        await asyncio.sleep(0.2)
        assert await two.children("/") == []
        assert states == [SessionState.SUSPENDED]
        one.reconnect()
        await asyncio.sleep(0)
        assert states == [SessionState.SUSPENDED, SessionState.EXPIRED]
        with pytest.raises(SessionExpired):
            await one.get("/")

    in_virtual_time(scenario)


def test_reconnect_in_time_keeps_session_and_delivers_missed_events() -> None:
    async def scenario() -> None:
        ensemble = MemoryEnsemble()
        one, two = ensemble.client(session_timeout_s=2.0), ensemble.client()
        await one.start()
        await two.start()
        heard: list[str] = []
        one.watch("/topic", lambda: heard.append("topic"))
        one.cut_off()
        await two.create("/topic")
        await asyncio.sleep(1.0)
        assert heard == []
        one.reconnect()
        await asyncio.sleep(3.0)
        assert heard == ["topic"]
        assert await one.children("/") == ["topic"]

    in_virtual_time(scenario)


def test_calls_of_disconnected_client_time_out_and_write_nothing() -> None:
    async def scenario() -> None:
        ensemble = MemoryEnsemble()
        store = ensemble.client(session_timeout_s=2.0)
        await store.start()
        store.cut_off()
        with pytest.raises(StoreUnreachable):
            await store.create("/topic")
        assert ensemble.tree.children("/") == []

    in_virtual_time(scenario)


def test_write_with_lost_response_has_unknown_outcome() -> None:
    async def scenario() -> None:
        ensemble = MemoryEnsemble()
        store = ensemble.client(Faults(Random(1), max_delay_s=1.0))
        await store.start()
        writing = asyncio.ensure_future(store.create("/topic"))
        while not ensemble.tree.children("/"):
            await asyncio.sleep(0.01)
        store.cut_off()
        store.reconnect()
        with pytest.raises(UnknownOutcome):
            await writing

    in_virtual_time(scenario)


def _lagging(seconds: float) -> Faults:
    return Faults(Random(1), max_lag_s=seconds)


def test_lagging_server_returns_older_state_until_it_catches_up() -> None:
    async def scenario() -> None:
        ensemble = MemoryEnsemble()
        one, two = ensemble.client(), ensemble.client(_lagging(10.0))
        await one.start()
        await one.create("/a", b"old")
        await two.start()
        assert (await two.get("/a")).data == b"old"
        heard: list[str] = []
        two.watch("/a", lambda: heard.append("two"))
        await one.set("/a", b"new")
        assert (await two.get("/a")).data == b"old"
        assert heard == []
        await asyncio.sleep(10.0)
        assert (await two.get("/a")).data == b"new"
        assert heard == ["two"]

    new_loop().run_until_complete(scenario())


def test_lagging_server_catches_up_on_own_write_and_never_goes_back() -> None:
    async def scenario() -> None:
        ensemble = MemoryEnsemble()
        one, two = ensemble.client(), ensemble.client(_lagging(10.0))
        await one.start()
        await two.start()
        await one.create("/a", b"0")
        with pytest.raises(NoNode):
            await two.get("/a")
        await two.create("/b")
        assert (await two.get("/a")).data == b"0"
        shown: list[int] = []
        for number in range(1, 20):
            await one.set("/a", b"%d" % number)
            await asyncio.sleep(0.7)
            shown.append(int((await two.get("/a")).data))
        assert shown == sorted(shown)
        assert shown != list(range(1, 20))

    new_loop().run_until_complete(scenario())


def test_reads_on_another_server_follow_a_sync() -> None:
    async def scenario() -> None:
        ensemble = MemoryEnsemble()
        one, two = ensemble.client(), ensemble.client(_lagging(10.0))
        await one.start()
        await two.start()
        await one.create("/a", b"0")
        two.cut_off()
        two.reconnect()
        assert (await two.get("/a")).data == b"0"

    new_loop().run_until_complete(scenario())
