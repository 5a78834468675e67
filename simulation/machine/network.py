"""`Network` in memory: hosts, listeners and byte streams, with latency, small windows and faults drawn from
the seed.

Bytes of one connection arrive in order, bytes of different connections in any order. The network outlives
processes: bytes of a crashed process may still arrive, and its peers see a reset.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context

from penstock.net.network import Socket
from simulation.machine.stream import SimulatedSocket, Stream
from simulation.machine.trace import Trace

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_FIRST_EPHEMERAL_PORT = 32_768
_ACCEPT_PAUSE_SECONDS = 0.1
_CONNECT_TIMEOUT_SECONDS = 20.0


class SimulatedNetwork:
    def __init__(self, loop: asyncio.AbstractEventLoop, random: random.Random, trace: Trace) -> None:
        self.latency_seconds = (0.0001, 0.003)
        self.loop = loop
        self.random = random
        self.trace = trace
        self._listeners: dict[tuple[str, int], SimulatedListener] = {}
        self._streams: dict[int, Stream] = {}
        self._severed: set[tuple[str, str]] = set()
        self._held: list[SimulatedSocket] = []
        self._next_port = _FIRST_EPHEMERAL_PORT
        self._next_stream = 0
        self._context = Context()
        """Schedule a callback of the network itself, which no crash of a process stops."""

    def host(self, name: str) -> HostNetwork:
        return HostNetwork(self, name)

    # --- faults

    def streams(self, host: str | None = None) -> list[Stream]:
        """Return the open connections, those of one host if it is named, oldest first."""
        return [stream for stream in self._streams.values() if host is None or host in stream.hosts]

    def sever(self, source: str, target: str) -> None:
        """Hold back all bytes from one host to another until `heal`."""
        self._severed.add((source, target))

    def part(self, one: str, other: str) -> None:
        """Hold back all bytes between two hosts, both ways, until `heal`."""
        self.sever(one, other)
        self.sever(other, one)

    def heal(self, host: str | None = None) -> None:
        """Let all bytes through again, those of one host if it is named."""
        self._severed = {pair for pair in self._severed if host is not None and host not in pair}
        held, self._held = self._held, []
        for socket in held:
            self.later(socket.deliver)

    def crash(self, host: str, *, notice_seconds: float = 0.0) -> None:
        """Close the sockets of a host; its peers get a reset after `notice_seconds` of silence."""
        for key in [key for key in self._listeners if key[0] == host]:
            del self._listeners[key]
        for stream in self.streams(host):
            stream.crash(host, notice_seconds)

    # --- for streams and hosts

    def later(self, callback: Callable[[], None], seconds: float | None = None) -> None:
        delay = self.random.uniform(*self.latency_seconds) if seconds is None else seconds
        self.loop.call_later(delay, callback, context=self._context)

    def is_severed(self, source: str, target: str) -> bool:
        return (source, target) in self._severed

    def hold(self, socket: SimulatedSocket) -> None:
        self._held.append(socket)

    def forget(self, stream: Stream) -> None:
        self._streams.pop(stream.number, None)

    def listen(self, host: str, port: int, accept: Callable[[Socket], bool]) -> SimulatedListener:
        port = port or self._take_port()
        if (host, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = SimulatedListener(self, host, port, accept)
        self._listeners[host, port] = listener
        return listener

    def unlisten(self, host: str, port: int) -> None:
        self._listeners.pop((host, port), None)

    async def connect(self, source: str, target: str, port: int) -> SimulatedSocket:
        deadline = self.loop.time() + _CONNECT_TIMEOUT_SECONDS
        await asyncio.sleep(self.random.uniform(*self.latency_seconds))
        while self.is_severed(source, target) or self.is_severed(target, source):
            if self.loop.time() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            await asyncio.sleep(1.0)
        listener = self._listeners.get((target, port))
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        self._next_stream += 1
        stream = Stream(self, self._next_stream, (source, self._take_port()), (target, port))
        self._streams[stream.number] = stream
        listener.accept(stream.server)
        return stream.client

    def _take_port(self) -> int:
        self._next_port += 1
        return self._next_port


class SimulatedListener:
    def __init__(
        self, network: SimulatedNetwork, host: str, port: int, accept: Callable[[Socket], bool]
    ) -> None:
        self.port = port
        self._network = network
        self._host = host
        self._accept = accept
        self._context = copy_context()
        self._waiting: deque[SimulatedSocket] = deque()
        self._paused = False

    def accept(self, socket: SimulatedSocket) -> None:
        self._waiting.append(socket)
        self._network.loop.call_soon(self._hand_over, context=self._context)

    def _hand_over(self) -> None:
        while self._waiting and not self._paused:
            if not self._accept(self._waiting.popleft()):
                self._paused = True
                self._network.loop.call_later(_ACCEPT_PAUSE_SECONDS, self._resume, context=self._context)

    def _resume(self) -> None:
        self._paused = False
        self._hand_over()

    def close(self) -> None:
        self._network.unlisten(self._host, self.port)


class HostNetwork:
    """The network as one host sees it, for `Environment`."""

    def __init__(self, network: SimulatedNetwork, name: str) -> None:
        self._network = network
        self._name = name

    async def listen(self, host: str, port: int, accept: Callable[[Socket], bool]) -> SimulatedListener:
        return self._network.listen(self._name, port, accept)

    async def connect(self, host: str, port: int) -> SimulatedSocket:
        return await self._network.connect(self._name, self._name if host in _LOOPBACK else host, port)
