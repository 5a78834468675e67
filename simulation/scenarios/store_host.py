"""The coordination store of brokers that share a machine, as `penstock broker --processes` runs it: a
`StoreServer` in a process of its own, which brokers reach over sockets.

The tree survives the process, as the file of an embedded store does. A killed server starts again when every
broker that had a session with it has ended, because those brokers hold its lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

from penstock.cluster.coordination import Delete, Node, NoNode, Operation
from penstock.cluster.store_server import StoreServer
from penstock.cluster.tree import PreparedWrite
from penstock.cluster.watches import Watches
from penstock.config import LoggingLevel
from penstock.net.network import Socket
from penstock.observability.log_lines import text_line
from penstock.observability.logs import Logger
from simulation.machine.clock import SimulatedClock
from simulation.machine.host import SimulatedWorld
from simulation.machine.network import HostNetwork, SimulatedListener
from simulation.machine.process import SimulatedCrash, SimulatedProcess
from simulation.models.partition_history import RecordedEnsemble

STORE_HOST = "store"
_MAX_WRITE_SECONDS = 0.01


class StoreHost:
    def __init__(self, world: SimulatedWorld, ensemble: RecordedEnsemble) -> None:
        self.down_until = 0.0
        """The virtual time before which the server is not started again."""
        self._world = world
        self._ensemble = ensemble
        self._random = world.random("store/host")
        self._process: SimulatedProcess | None = None
        self._starts = 0
        self._holders: list[SimulatedProcess] = []
        """The brokers that opened a session with the last server."""
        self._logger = Logger(SimulatedClock(world.loop.time), self._write_log, text_line, LoggingLevel.DEBUG)

    @property
    def is_running(self) -> bool:
        return self._process is not None

    async def keep(self) -> None:
        """Start the server whenever it is down and no broker of the last one runs."""
        while True:
            await asyncio.sleep(self._random.uniform(0.01, 0.05))
            is_due = self._world.loop.time() >= self.down_until
            if self._process is None and is_due and not any(holder.alive for holder in self._holders):
                with suppress(SimulatedCrash):
                    await self._start()

    def add_holder(self, process: SimulatedProcess) -> None:
        """Note a broker that is about to open a session."""
        self._holders = [*(holder for holder in self._holders if holder.alive), process]

    async def _start(self) -> None:
        self._starts += 1
        self._world.trace.record("start", STORE_HOST, self._starts)
        self._process = process = SimulatedProcess(f"{STORE_HOST}/{self._starts}")
        network = _NotingNetwork(self._world.network.host(STORE_HOST))
        store = _ServedStore(self._ensemble, self._random, network.peers)

        async def start() -> None:
            await store.end_all_sessions()
            await StoreServer(store, network, self._logger).start(STORE_HOST)

        await process.run(start())

    def crash(self) -> None:
        if self._process is not None:
            self._world.trace.record("crash", STORE_HOST)
            self._process.end()
            self._process = None
            self._world.network.crash(STORE_HOST)

    def pause(self) -> None:
        if self._process is not None:
            self._world.trace.record("pause", STORE_HOST)
            self._process.is_paused = True

    def resume(self) -> None:
        if self._process is not None and self._process.is_paused:
            self._world.trace.record("resume", STORE_HOST)
            self._world.loop.resume(self._process)

    def _write_log(self, line: str) -> None:
        self._world.trace.record("log", STORE_HOST, line.rstrip("\n"))


class _NotingNetwork:
    """A network that notes the peers of its server in the order of their connections."""

    def __init__(self, network: HostNetwork) -> None:
        self.peers: list[str] = []
        self._network = network

    async def listen(self, host: str, port: int, accept: Callable[[Socket], bool]) -> SimulatedListener:
        def noting(socket: Socket) -> bool:
            self.peers.append(socket.peer.partition(":")[0])
            return accept(socket)

        return await self._network.listen(host, port, noting)

    async def connect(self, host: str, port: int) -> Socket:
        return await self._network.connect(host, port)


class _ServedStore:
    """The ensemble as the embedded store of a server: one write at a time, each with a delay before and after it."""

    def __init__(self, ensemble: RecordedEnsemble, random: Random, peers: Sequence[str]) -> None:
        """`peers` has the host of each session, from session 2 on."""
        self._ensemble = ensemble
        self._random = random
        self._peers = peers
        self._watches = Watches()
        self._writing = asyncio.Lock()

    async def end_all_sessions(self) -> None:
        """Remove the ephemeral nodes of earlier servers."""
        entries = self._ensemble.tree.entries.values()
        owners = sorted({entry.owner for entry in entries if entry.owner})
        await self._write(lambda: self._removal_of(owners), "")

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return [self._get(path) for path in paths]

    async def children(self, path: str) -> list[str]:
        return self._ensemble.tree.children(path)

    def watch(self, path: str, callback: Callable[[], None]) -> Callable[[], None]:
        return self._watches.add(path, callback)

    async def multi_of(self, session: int, operations: Sequence[Operation]) -> list[str | Node | None]:
        return await self._write(
            lambda: self._ensemble.tree.prepare(operations, session), self._writer(session)
        )

    async def end_session(self, session: int) -> None:
        await self._write(lambda: self._removal_of([session]), self._writer(session))

    def _get(self, path: str) -> Node | None:
        try:
            return self._ensemble.tree.get(path)
        except NoNode:
            return None

    def _writer(self, session: int) -> str:
        """Name the process of a session, as far as its host."""
        return f"{self._peers[session - 2]}/"

    def _removal_of(self, sessions: Sequence[int]) -> PreparedWrite:
        tree = self._ensemble.tree
        return tree.prepare([Delete(path) for each in sessions for path in tree.owned_by(each)], 1)

    async def _write(self, prepare: Callable[[], PreparedWrite], writer: str) -> list[str | Node | None]:
        async with self._writing:
            await self._delay()
            transaction = prepare()
            self._ensemble.commit_as(writer, transaction)
            self._watches.notify(transaction.touched)
            await self._delay()
            return transaction.results

    async def _delay(self) -> None:
        await asyncio.sleep(self._random.uniform(0.0, _MAX_WRITE_SECONDS))
