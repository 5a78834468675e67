"""Behaviour of a real ZooKeeper: lost connections, expired sessions, killed servers, ACLs."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from cutting_proxy import GET_DATA, MULTI, SYNC, Cut, CuttingProxy

from penstock.cli.cluster.zookeeper_process import (
    EnsembleMember,
    ZooKeeperProcess,
    server_mode,
)
from penstock.cluster.coordination import (
    BadVersion,
    Create,
    NodeExists,
    NoNode,
    SessionExpired,
    SessionState,
    StoreUnreachable,
)
from penstock.cluster.zookeeper import CHUNK, ZooKeeperStore
from penstock.cluster.zookeeper_security import ZooKeeperSecurity
from penstock.errors import StorageError, UnknownOutcome
from penstock.threads import ThreadPools
from support.broker_process import free_ports
from support.eventually import eventually_async
from support.zookeeper_ensemble import ZooKeeperEnsemble

SHORT_MS = 1_000
LONG_MS = 10_000
PATIENCE_SECONDS = 20


@asynccontextmanager
async def session(
    hosts: str, session_timeout_ms: int = LONG_MS, digest: str | None = None
) -> AsyncIterator[ZooKeeperStore]:
    threads = ThreadPools()
    store = ZooKeeperStore(hosts, threads, session_timeout_ms, ZooKeeperSecurity(digest))
    await store.start()
    try:
        yield store
    finally:
        await store.close()
        threads.close()


@asynccontextmanager
async def proxied(hosts: str) -> AsyncIterator[tuple[CuttingProxy, str]]:
    """A store on the same chroot, through a proxy."""
    address, _, chroot = hosts.partition("/")
    proxy = CuttingProxy(int(address.rpartition(":")[2]))
    await proxy.start()
    try:
        yield proxy, f"127.0.0.1:{proxy.port}/{chroot}"
    finally:
        await proxy.close()


class States:
    """Session states of a store, with a way to wait for one."""

    def __init__(self, store: ZooKeeperStore) -> None:
        self.heard: list[SessionState] = []
        self._news = asyncio.Event()
        store.on_session(self._hear)

    async def until(self, *states: SessionState) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while tuple(self.heard[-len(states) :]) != states:
                self._news.clear()
                await self._news.wait()

    async def until_any(self, *states: SessionState) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self.heard or self.heard[-1] not in states:
                self._news.clear()
                await self._news.wait()

    def _hear(self, state: SessionState) -> None:
        self.heard.append(state)
        self._news.set()


@pytest.mark.parametrize("cut", Cut)
def test_write_on_cut_connection_is_unknown_until_read(zookeeper: str, cut: Cut) -> None:
    async def scenario() -> None:
        async with proxied(zookeeper) as (proxy, hosts), session(hosts) as store:
            await store.create("/a", b"old")
            states = States(store)
            proxy.next_multi = cut
            with pytest.raises(UnknownOutcome):
                await store.set("/a", b"new", version=0)
            node = await store.get("/a")
            written = cut is Cut.AFTER_FORWARDING
            assert (node.data, node.version) == ((b"new", 1) if written else (b"old", 0))
            assert states.heard == [SessionState.SUSPENDED, SessionState.CONNECTED]
            assert (await store.set("/a", b"next", node.version)).data == b"next"

    asyncio.run(scenario())


def test_reads_follow_a_sync_after_lost_connection(zookeeper: str) -> None:
    """The next server of an ensemble may lag behind the one that accepted the write."""

    async def scenario() -> None:
        async with proxied(zookeeper) as (proxy, hosts), session(hosts) as store:
            await store.create("/a")
            proxy.requests.clear()
            await store.get("/a")
            assert proxy.requests == [GET_DATA]
            proxy.next_multi = Cut.AFTER_FORWARDING
            with pytest.raises(UnknownOutcome):
                await store.set("/a", b"new")
            await store.get("/a")
            await store.get("/a")
            assert proxy.requests == [GET_DATA, MULTI, SYNC, GET_DATA, GET_DATA]

    asyncio.run(scenario())


def test_expired_session_is_reported_once_and_final(zookeeper: str) -> None:
    async def scenario() -> None:
        async with proxied(zookeeper) as (proxy, hosts), session(zookeeper) as other:
            async with session(hosts, SHORT_MS) as store:
                await store.create("/mine", ephemeral=True)
                states = States(store)
                proxy.cut()
                await eventually_async(lambda: is_gone(other, "/mine"))
                assert SessionState.EXPIRED not in states.heard
                proxy.restore()
                await states.until(SessionState.SUSPENDED, SessionState.EXPIRED)
                for call in (
                    store.get("/"),
                    store.get_many(["/"]),
                    store.children("/"),
                    store.create("/x", ephemeral=True),
                ):
                    with pytest.raises(SessionExpired):
                        await call
                await eventually_async(lambda: is_gone(other, "/x"))
            assert states.heard == [SessionState.SUSPENDED, SessionState.EXPIRED]

    asyncio.run(scenario())


async def is_gone(store: ZooKeeperStore, path: str) -> bool:
    return await store.get_many([path]) == [None]


def test_silent_server_leaves_no_unknown_outcome_on_return(own_zookeeper: ZooKeeperProcess) -> None:
    """The server decides whether it still knows the session; the store reports the truth either way."""

    async def scenario() -> None:
        async with session(f"127.0.0.1:{own_zookeeper.port}", SHORT_MS) as store:
            await store.create("/mine", ephemeral=True)
            states = States(store)
            own_zookeeper.pause()
            try:
                with pytest.raises(UnknownOutcome):
                    await store.set("/mine", b"not answered")
                with pytest.raises(StoreUnreachable):
                    await store.get("/mine")
                await states.until(SessionState.SUSPENDED)
            finally:
                own_zookeeper.resume()
            await states.until_any(SessionState.CONNECTED, SessionState.EXPIRED)
            try:
                assert (await store.get("/mine")).ephemeral
            except SessionExpired:
                assert states.heard[-1] is SessionState.EXPIRED

    asyncio.run(scenario())


SLEEPER = """
import asyncio, sys
from penstock.cluster.zookeeper import ZooKeeperStore
from penstock.threads import ThreadPools

async def main():
    threads = ThreadPools()
    store = ZooKeeperStore(sys.argv[1], threads, 1000)
    store.on_session(lambda state: print(state.value, flush=True))
    await store.start()
    await store.create("/mine", ephemeral=True)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await store.close()
    threads.close()

asyncio.run(main())
"""


def test_suspended_process_finds_its_session_expired(zookeeper: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper) as other:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", SLEEPER, zookeeper, stdin=PIPE, stdout=PIPE
            )
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                lines: list[bytes] = []
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while lines[-1:] != [b"ready\n"]:
                        lines.append(await process.stdout.readline())
                process.send_signal(signal.SIGSTOP)
                await eventually_async(lambda: is_gone(other, "/mine"))
                process.send_signal(signal.SIGCONT)
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while lines[-1:] != [b"expired\n"]:
                        lines.append(await process.stdout.readline())
                process.stdin.close()
                rest = await asyncio.wait_for(process.stdout.read(), PATIENCE_SECONDS)
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()
            assert lines == [b"connected\n", b"ready\n", b"suspended\n", b"expired\n"]
            assert rest == b""

    asyncio.run(scenario())


def test_watches_report_changes_during_disconnection(zookeeper: str) -> None:
    async def scenario() -> None:
        async with proxied(zookeeper) as (proxy, hosts), session(hosts) as store, session(zookeeper) as other:
            for path in ("/changed", "/same", "/parent"):
                await store.create(path)
            heard: set[str] = set()
            for path in ("/changed", "/same", "/parent", "/made"):
                store.watch(path, partial(heard.add, path))
            await store.get("/")
            states = States(store)
            proxy.cut()
            await states.until(SessionState.SUSPENDED)
            store.watch("/late", lambda: heard.add("/late"))
            await other.set("/changed", b"1")
            await other.create("/parent/child")
            await other.create("/made")
            proxy.restore()
            # A watch that was added during the disconnection cannot know what it missed.
            await eventually_async(lambda: equal(heard, {"/changed", "/parent", "/made", "/late"}))
            heard.clear()
            await other.set("/same", b"1")
            await eventually_async(lambda: equal(heard, {"/same"}))

    asyncio.run(scenario())


async def equal(heard: set[str], wanted: set[str]) -> bool:
    return heard == wanted


def test_no_change_is_lost_between_event_and_next_watch(zookeeper: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper) as store, session(zookeeper) as other:
            await store.create("/a", b"0")
            reads: list[bytes] = []
            changed = asyncio.Event()
            store.watch("/a", changed.set)

            async def follow() -> None:
                while reads[-1:] != [b"300"]:
                    await changed.wait()
                    changed.clear()
                    reads.append((await store.get("/a")).data)

            following = asyncio.ensure_future(follow())
            await asyncio.gather(*(other.set("/a", str(number).encode()) for number in range(1, 301)))
            await asyncio.wait_for(following, PATIENCE_SECONDS)
            assert reads == sorted(reads, key=int)

    asyncio.run(scenario())


def test_reading_thousands_of_nodes_survives_a_cut(zookeeper: str) -> None:
    async def scenario() -> None:
        async with proxied(zookeeper) as (proxy, hosts), session(hosts) as store:
            names = [f"/n{number}" for number in range(10 * CHUNK + 1)]
            for start in range(0, len(names), 500):
                await store.multi([Create(name, name.encode()) for name in names[start : start + 500]])
            reading = asyncio.ensure_future(store.get_many([*names, "/missing"]))
            cuts = 0
            while not reading.done():
                proxy.drop()
                cuts += 1
                await asyncio.wait({reading}, timeout=0.05)
                if cuts > 3:
                    break
            nodes = await reading
            assert cuts > 1
            assert [node and node.data for node in nodes] == [*(name.encode() for name in names), None]

    asyncio.run(scenario())


def test_writes_and_session_survive_kill_and_restart(own_zookeeper: ZooKeeperProcess) -> None:
    """Each increment is counted once: unknown outcomes are read again."""

    async def scenario() -> None:
        async with session(f"127.0.0.1:{own_zookeeper.port}/kill") as store:
            await store.create("/counter", b"0")
            await store.create("/mine", ephemeral=True)
            states = States(store)
            done = unknown = 0
            killer = asyncio.ensure_future(kill_and_restart(own_zookeeper, lambda: done))
            while not killer.done():
                value = str(done + 1).encode()
                try:
                    await store.set("/counter", value, version=done)
                except UnknownOutcome:
                    unknown += 1
                    done = int((await store.get("/counter")).data)
                    continue
                except BadVersion:
                    pytest.fail("a write happened that was read as not done")
                done += 1
            await killer
            node = await store.get("/counter")
            assert (int(node.data), node.version) == (done, done)
            assert unknown >= 1
            assert SessionState.EXPIRED not in states.heard
            assert (await store.get("/mine")).ephemeral

    asyncio.run(scenario())


async def kill_and_restart(server: ZooKeeperProcess, done: Callable[[], int]) -> None:
    for _ in range(3):
        goal = done() + 50
        await eventually_async(partial(reached, done, goal))
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)


async def reached(done: Callable[[], int], goal: int) -> bool:
    return done() >= goal


def test_unreachable_server_is_named(zookeeper: str) -> None:
    async def scenario() -> None:
        [port] = free_ports(1)
        threads = ThreadPools()
        store = ZooKeeperStore(f"127.0.0.1:{port}", threads, 300)
        with pytest.raises(StoreUnreachable, match=f"127.0.0.1:{port} does not respond"):
            await store.start()
        threads.close()
        async with proxied(zookeeper) as (proxy, hosts), session(hosts, SHORT_MS) as store:
            states = States(store)
            proxy.cut()
            await states.until(SessionState.SUSPENDED)
            with pytest.raises(StoreUnreachable):
                await store.get("/")
            with pytest.raises(StoreUnreachable):
                await store.create("/never-sent")

    asyncio.run(scenario())


def test_only_the_user_of_the_digest_reads_and_writes(zookeeper: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper, digest="penstock:a:secret") as store:
            await store.create("/a", b"1")
        async with session(zookeeper, digest="penstock:a:secret") as again:
            assert (await again.get("/a")).data == b"1"
        async with session(zookeeper) as stranger:
            for call in (
                stranger.get("/a"),
                stranger.get_many(["/a"]),
                stranger.set("/a", b""),
                stranger.create("/b"),
            ):
                with pytest.raises(StorageError, match="NoAuth"):
                    await call

    asyncio.run(scenario())


def test_too_large_multi_raises_value_error(zookeeper: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper) as store:
            with pytest.raises(ValueError, match="bytes; at most"):
                await store.multi([Create(f"/n{number}", bytes(100_000)) for number in range(11)])
            await store.multi([Create(f"/n{number}", bytes(90_000)) for number in range(11)])

    asyncio.run(scenario())


def test_closed_store_ends_its_session_at_once(zookeeper: str) -> None:
    async def scenario() -> None:
        async with session(zookeeper) as other:
            async with session(zookeeper) as store:
                await store.create("/mine", ephemeral=True)
                states = States(store)
            assert await is_gone(other, "/mine")
            with pytest.raises(SessionExpired):
                await store.get("/")
            assert states.heard == []

    asyncio.run(scenario())


def test_sessions_see_each_other_but_not_beyond_their_chroot(zookeeper: str) -> None:
    async def scenario() -> None:
        async with session(f"{zookeeper}/one/deep") as one, session(f"{zookeeper}/two") as two:
            await one.create("/a")
            with pytest.raises(NoNode):
                await two.get("/a")
            async with session(f"{zookeeper}/one/deep/") as same:
                with pytest.raises(NodeExists):
                    await same.create("/a")
                assert await same.create("/s-", sequential=True) == "/s-0000000001"

    asyncio.run(scenario())


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.usefixtures("zookeeper_parts")
def test_ensemble_survives_killed_leader(tmp_path: Path) -> None:
    ports = free_ports(9)
    members = [EnsembleMember(*ports[start : start + 3]) for start in (0, 3, 6)]
    ensemble = ZooKeeperEnsemble(str(tmp_path), members)

    async def scenario() -> None:
        async with session(f"{ensemble.hosts}/penstock", 6_000) as store:
            await store.create("/a", b"0")
            await store.create("/mine", ephemeral=True)
            states = States(store)
            [leader] = [server for server in ensemble.servers if server_mode(server.port) == "leader"]
            leader.kill()
            version = 0
            async with asyncio.timeout(PATIENCE_SECONDS):
                while version < 20:
                    try:
                        version = (await store.set("/a", b"1", version)).version
                    except (UnknownOutcome, StoreUnreachable):
                        version = (await store.get("/a")).version
            assert (await store.get("/mine")).ephemeral
            assert SessionState.EXPIRED not in states.heard
            leader.start()
            assert server_mode(leader.port) == "follower"

    ensemble.start()
    try:
        asyncio.run(scenario())
    finally:
        ensemble.stop()
