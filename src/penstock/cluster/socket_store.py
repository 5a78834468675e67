"""Coordination store of a broker that shares a machine with other brokers: a session with their common store.

The other end is `store_server.py`. A lost connection means an expired session: either the server has ended,
or it has expired the session. A write without a response has an unknown outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from penstock.cluster import store_messages as messages
from penstock.cluster.coordination import (
    Delete,
    Node,
    NoNode,
    Operation,
    SessionExpired,
    SessionState,
    SingleWrites,
    StoreUnreachable,
)
from penstock.cluster.tree import ROOT, check_path
from penstock.cluster.watches import Watches
from penstock.errors import UnknownOutcome
from penstock.net.frame_stream import FrameStream
from penstock.net.network import Network
from penstock.unreachable import ConnectionLost

PINGS_PER_TIMEOUT = 4

A = TypeVar("A", messages.Nodes, messages.Names, messages.Results)


class SocketStore(SingleWrites):
    def __init__(self, network: Network, path: str, session_timeout_s: float) -> None:
        self._network = network
        self._path = path
        self._timeout_s = session_timeout_s
        self._stream: FrameStream | None = None
        self._opened: asyncio.Future[None] | None = None
        self._is_over = False
        self._last_id = 0
        self._waiting: dict[int, asyncio.Future[messages.Answer]] = {}
        self._watches = Watches()
        self._watched: set[str] = set()
        self._session_callbacks: list[Callable[[SessionState], None]] = []
        self._ping_timer: asyncio.TimerHandle | None = None

    @property
    def requests_in_flight(self) -> int:
        """Number of requests without a response. The server may have applied a write among them, or may still
        apply it.
        """
        return len(self._waiting)

    async def start(self) -> None:
        """Open a session. Raises StoreUnreachable if the server does not respond in time."""
        self._opened = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._timeout_s):
                socket = await self._network.connect(self._path, messages.PORT)
                self._stream = FrameStream(socket, messages.MAX_FRAME_BYTES, self._on_frame, self._on_lost)
                self._send(messages.Open(round(self._timeout_s * 1000)))
                for path in self._watched:
                    self._send(messages.Watch(path))
                await self._opened
        except (OSError, SessionExpired):  # A TimeoutError is an OSError.
            self._end()
            raise StoreUnreachable(self._path) from None
        self._ping()
        self._tell(SessionState.CONNECTED)

    async def close(self) -> None:
        if self._stream is not None and not self._is_over:
            with suppress(TimeoutError, UnknownOutcome):
                async with asyncio.timeout(self._timeout_s):
                    await self._ask(messages.End)
        self._end()

    def _end(self) -> None:
        """End the session without a call of the session callbacks."""
        self._is_over = True
        if self._stream is not None:
            self._stream.close()

    async def get(self, path: str) -> Node:
        [node] = await self.get_many([path])
        if node is None:
            raise NoNode(path)
        return node

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        for path in paths:
            check_path(path)
        answer = await self._read(partial(messages.Read, paths=list(paths)), messages.Nodes)
        return [Node(*node) if node is not None else None for node in answer.nodes]

    async def children(self, path: str) -> list[str]:
        check_path(path)
        return (await self._read(partial(messages.List, path=path), messages.Names)).names

    async def multi(self, operations: Sequence[Operation]) -> list[str | Node | None]:
        for operation in operations:
            check_path(operation.path)
            if isinstance(operation, Delete) and operation.path == ROOT:
                raise ValueError("the root cannot be deleted")
        self._check_open()
        packed = messages.pack_operations(operations)
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._ask(partial(messages.Write, operations=packed))
        except TimeoutError:
            raise UnknownOutcome(f"no response from {self._path}") from None
        assert isinstance(answer, messages.Results)
        return messages.unpack_results(answer.results)

    def watch(self, path: str, callback: Callable[[], None]) -> Callable[[], None]:
        check_path(path)
        if path not in self._watched:
            self._watched.add(path)
            self._send(messages.Watch(path))
        return self._watches.add(path, callback)

    def on_session(self, callback: Callable[[SessionState], None]) -> None:
        self._session_callbacks.append(callback)

    def _check_open(self) -> None:
        assert self._stream is not None, "the store is not started"
        if self._is_over:
            raise SessionExpired(ROOT)

    async def _read(self, make: Callable[[int], messages.Call], kind: type[A]) -> A:
        self._check_open()
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._ask(make)
        except TimeoutError:
            raise StoreUnreachable(self._path) from None
        except UnknownOutcome:
            raise SessionExpired(ROOT) from None
        assert isinstance(answer, kind)
        return answer

    async def _ask(self, make: Callable[[int], messages.Call]) -> messages.Answer:
        """Send a request and wait for its response. Raises UnknownOutcome when the connection is lost."""
        self._last_id += 1
        request_id = self._last_id
        future: asyncio.Future[messages.Answer] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        self._send(make(request_id))
        try:
            answer = await future
        finally:
            self._waiting.pop(request_id, None)
        if isinstance(answer, messages.Refused):
            raise messages.error_of(answer)
        return answer

    def _send(self, request: messages.Request) -> None:
        if self._stream is not None:
            self._stream.send(messages.encode(request))

    def _ping(self) -> None:
        self._send(messages.Ping())
        loop = asyncio.get_running_loop()
        self._ping_timer = loop.call_later(self._timeout_s / PINGS_PER_TIMEOUT, self._ping)

    def _on_frame(self, frame: memoryview) -> None:
        response = messages.decode_response(frame)
        if isinstance(response, messages.Changed):
            self._watches.notify([response.path])
        elif isinstance(response, messages.Opened):
            assert self._opened is not None
            if not self._opened.done():
                self._opened.set_result(None)
        elif (future := self._waiting.get(response.id)) is not None and not future.done():
            future.set_result(response)

    def _on_lost(self, _: ConnectionLost) -> None:
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        if self._opened is not None and not self._opened.done():
            self._is_over = True  # The session was never open, so its end is not reported.
            self._opened.set_exception(SessionExpired(ROOT))
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(
                    UnknownOutcome("the connection to the store was lost before the response")
                )
        if not self._is_over:
            self._is_over = True
            self._tell(SessionState.EXPIRED)

    def _tell(self, state: SessionState) -> None:
        for callback in self._session_callbacks:
            callback(state)
