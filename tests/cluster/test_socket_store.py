"""Sessions of the store of one machine, in virtual time: expiry, lost connections and unknown outcomes."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest
from node import quiet_log

from penstock.cluster import store_messages, store_server
from penstock.cluster.coordination import NoNode, SessionExpired, SessionState, StoreUnreachable
from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.socket_store import SocketStore
from penstock.cluster.store_server import StoreServer
from penstock.errors import ConfigError, StorageError, UnknownOutcome
from penstock.net.frame_stream import FrameStream
from penstock.net.unix_network import MAX_PATH_BYTES, UnixNetwork
from penstock.unreachable import ConnectionLost
from simulation.machine.loop import SimulationLoop, new_loop
from simulation.machine.network import SimulatedNetwork
from simulation.machine.threads import SimulatedThreads
from simulation.machine.trace import Trace
from support.eventually import eventually_async

SERVER = "server"
TIMEOUT_S = 6.0


class Machine:
    """A store, its server, and clients on hosts of their own, so that each can be disconnected."""

    def __init__(self, loop: SimulationLoop, directory: Path, seed: int) -> None:
        trace = Trace(loop.time)
        self.network = SimulatedNetwork(loop, Random(seed), trace)
        self.threads = SimulatedThreads(loop, Random(seed), trace)
        self.store = EmbeddedStore(str(directory / "metadata.sqlite"), self.threads)
        self.server = StoreServer(self.store, self.network.host(SERVER), quiet_log())

    async def start(self) -> None:
        await self.store.start()
        await self.server.start(SERVER)

    async def client(self, name: str) -> tuple[SocketStore, list[SessionState]]:
        states: list[SessionState] = []
        store = SocketStore(self.network.host(name), SERVER, TIMEOUT_S)
        store.on_session(states.append)
        await store.start()
        return store, states


def run(directory: Path, scenario: Callable[[Machine], Awaitable[None]], seed: int = 1) -> None:
    loop = new_loop()

    async def body() -> None:
        machine = Machine(loop, directory, seed)
        await machine.start()
        await scenario(machine)
        await machine.server.close()
        await machine.store.close()

    try:
        loop.run_until_complete(body())
        assert loop.unhandled == []
    finally:
        loop.close()


def test_idle_session_stays_open(tmp_path: Path) -> None:
    async def scenario(machine: Machine) -> None:
        store, states = await machine.client("one")
        await store.create("/a", ephemeral=True)
        await asyncio.sleep(20 * TIMEOUT_S)
        assert await machine.store.children("/") == ["a"]
        assert states == [SessionState.CONNECTED]

    run(tmp_path, scenario)


def test_silent_session_expires_and_its_client_learns_of_it(tmp_path: Path) -> None:
    async def scenario(machine: Machine) -> None:
        store, states = await machine.client("one")
        await store.create("/a", ephemeral=True)
        machine.network.part("one", SERVER)
        await asyncio.sleep(TIMEOUT_S - 1)
        assert await machine.store.children("/") == ["a"]
        await eventually_async(lambda: no_children(machine), within_s=3)
        machine.network.heal()
        await eventually_async(lambda: states == [SessionState.CONNECTED, SessionState.EXPIRED], within_s=1)
        for call in (store.get("/"), store.children("/"), store.create("/b")):
            with pytest.raises(SessionExpired):
                await call
        await store.close()
        again, _ = await machine.client("one")
        await again.create("/a", ephemeral=True)

    run(tmp_path, scenario)


async def no_children(machine: Machine) -> bool:
    return await machine.store.children("/") == []


def test_session_ends_at_once_with_its_process(tmp_path: Path) -> None:
    async def scenario(machine: Machine) -> None:
        store, _ = await machine.client("one")
        await store.create("/a", ephemeral=True)
        machine.network.crash("one")
        await eventually_async(lambda: no_children(machine), within_s=0.5)

    run(tmp_path, scenario)


def test_end_of_the_server_expires_all_sessions(tmp_path: Path) -> None:
    async def scenario(machine: Machine) -> None:
        clients = [await machine.client(name) for name in ("one", "two")]
        writes = [asyncio.ensure_future(store.create(f"/n{n}")) for n, (store, _) in enumerate(clients)]
        await asyncio.sleep(0)
        machine.network.crash(SERVER)
        for outcome in await asyncio.gather(*writes, return_exceptions=True):
            assert isinstance(outcome, UnknownOutcome)
        assert [states for _, states in clients] == [[SessionState.CONNECTED, SessionState.EXPIRED]] * 2

    run(tmp_path, scenario)


@pytest.mark.parametrize("seed", range(20))
def test_write_with_lost_connection_is_done_or_never_done(tmp_path: Path, seed: int) -> None:
    """The outcome is unknown to the client. A write of another session after the loss shows it, and it is final."""

    async def scenario(machine: Machine) -> None:
        store, _ = await machine.client("one")
        other, _ = await machine.client("two")
        await store.create("/kept", ephemeral=True)
        writes = [asyncio.ensure_future(store.create(f"/n{n}", ephemeral=n % 2 == 0)) for n in range(6)]
        await asyncio.sleep(Random(seed).uniform(0, 0.2))
        for stream in machine.network.streams("one"):
            stream.reset()
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        await other.create("/later")
        lasting = {f"n{n}" for n in range(1, 6, 2)}
        done = lasting & set(await other.children("/"))
        for number, outcome in enumerate(outcomes):
            assert isinstance(outcome, str | UnknownOutcome)
            assert number % 2 == 0 or isinstance(outcome, UnknownOutcome) or f"n{number}" in done
        await eventually_async(lambda: is_gone(machine, "/kept"), within_s=1)
        assert await machine.store.children("/") == ["later", *sorted(done)]

    run(tmp_path, scenario, seed)


async def is_gone(machine: Machine, path: str) -> bool:
    try:
        await machine.store.get(path)
    except NoNode:
        return True
    return False


def test_slow_write_has_unknown_outcome_and_later_reads_follow_it(tmp_path: Path) -> None:
    async def scenario(machine: Machine) -> None:
        store, _ = await machine.client("one")
        machine.threads.slowness = 10_000.0
        with pytest.raises(UnknownOutcome):
            await store.create("/a")
        with pytest.raises(StoreUnreachable):
            await store.children("/")
        machine.threads.slowness = 1.0
        await eventually_async(
            lambda: store.children("/"), within_s=1_000, poll_s=1, ignoring=(StoreUnreachable,)
        )
        assert await store.children("/") == ["a"]

    run(tmp_path, scenario)


def test_full_disk_delays_the_end_of_a_session_until_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(machine: Machine) -> None:
        store, _ = await machine.client("one")
        await store.create("/a", ephemeral=True)
        real = machine.store.end_session

        async def refuse(session: int) -> None:
            raise StorageError("no space left on the disk")

        monkeypatch.setattr(machine.store, "end_session", refuse)
        machine.network.crash("one")
        await asyncio.sleep(5)
        assert await machine.store.children("/") == ["a"]
        monkeypatch.setattr(machine.store, "end_session", real)
        await eventually_async(lambda: no_children(machine), within_s=3)

    run(tmp_path, scenario)


def test_refusals_reach_the_client_with_their_message(tmp_path: Path) -> None:
    async def scenario(machine: Machine) -> None:
        store, _ = await machine.client("one")
        machine.store._failure = "metadata.sqlite could not be written; restart"
        with pytest.raises(StorageError, match="could not be written; restart"):
            await store.create("/a")
        machine.store._failure = None

    run(tmp_path, scenario)


def test_suspended_server_expires_no_session_when_it_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(machine: Machine) -> None:
        store, states = await machine.client("one")
        # A late tick is all that a suspended process notices.
        monkeypatch.setattr(store_server, "TICK_SECONDS", 3 * TIMEOUT_S)
        monkeypatch.setattr(SocketStore, "_ping", lambda self: None)
        await asyncio.sleep(3 * TIMEOUT_S + 1)
        monkeypatch.setattr(store_server, "TICK_SECONDS", 0.5)
        assert states == [SessionState.CONNECTED]
        await asyncio.sleep(3 * TIMEOUT_S + TIMEOUT_S / 2)
        assert await store.children("/") == []

    run(tmp_path, scenario)


def test_watch_reports_changes_of_other_clients(tmp_path: Path) -> None:
    async def scenario(machine: Machine) -> None:
        one, _ = await machine.client("one")
        two, _ = await machine.client("two")
        heard: list[str] = []
        two.watch("/", lambda: heard.append("root"))
        await asyncio.sleep(0.1)
        await one.create("/a")
        await eventually_async(lambda: heard, within_s=1)

    run(tmp_path, scenario)


def test_invalid_message_closes_only_its_connection(tmp_path: Path) -> None:
    async def scenario(machine: Machine) -> None:
        store, states = await machine.client("one")
        lost: asyncio.Future[ConnectionLost] = asyncio.get_running_loop().create_future()
        socket = await machine.network.host("two").connect(SERVER, store_messages.PORT)
        FrameStream(socket, 100, lambda _: None, lost.set_result).send(b"\0\0\0\x0f\xc1 not a message")
        await asyncio.wait_for(lost, 1)
        await store.create("/a")
        assert states == [SessionState.CONNECTED]

    run(tmp_path, scenario)


def test_start_without_a_server_is_unreachable(tmp_path: Path) -> None:
    async def scenario() -> None:
        states: list[SessionState] = []
        store = SocketStore(UnixNetwork(), str(tmp_path / "nothing"), 1.0)
        store.on_session(states.append)
        with pytest.raises(StoreUnreachable, match="does not respond"):
            await store.start()
        await store.close()
        assert states == []

    asyncio.run(scenario())


def test_unix_socket_belongs_to_its_user_and_replaces_a_stale_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "socket"
        path.write_text("left by an ended process")
        listener = await UnixNetwork().listen(str(path), 0, lambda _: True)
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert stat.S_ISSOCK(os.stat(path).st_mode)
        listener.close()
        assert not path.exists()

    asyncio.run(scenario())


def test_too_long_socket_path_is_refused_with_its_length() -> None:
    async def scenario() -> None:
        path = "/tmp/" + "x" * MAX_PATH_BYTES
        with pytest.raises(ConfigError, match=f"{len(path)} bytes, at most {MAX_PATH_BYTES}"):
            await UnixNetwork().listen(path, 0, lambda _: True)

    asyncio.run(scenario())
