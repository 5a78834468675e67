"""Server of an embedded store: sessions for the brokers of one machine, over a socket.

A session is one connection. It ends when the connection is lost, when its client ends it, or when it expires
because the client was silent for the session timeout. Its ephemeral nodes are then removed, after the request
in progress; later requests in the queue are dropped. A client never resumes a session, because a local
connection is lost only when one of the two processes ends or the session expires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from penstock.cluster import store_messages as messages
from penstock.cluster.coordination import Node, Operation
from penstock.cluster.embedded import OUR_SESSION
from penstock.errors import PenstockError, ProtocolError, StorageError, UnknownOutcome
from penstock.net.frame_stream import FrameStream
from penstock.net.network import Listener, Network, Socket
from penstock.observability.logs import Logger
from penstock.unreachable import ConnectionLost

TICK_SECONDS = 0.5
MAX_TICK_SECONDS = 2.0
"""A tick that is later than this many seconds means that this process was suspended and could not receive
messages, so that silent clients are not expired.
"""
RETRY_SECONDS = 1.0
"""Pause in seconds before another attempt to remove the ephemeral nodes of an ended session, for example on a
full disk.
"""


class SessionStore(Protocol):
    """Store whose sessions are numbers that its server assigns, such as `EmbeddedStore`."""

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]: ...

    async def children(self, path: str) -> list[str]: ...

    def watch(self, path: str, callback: Callable[[], None]) -> Callable[[], None]: ...

    async def multi_of(self, session: int, operations: Sequence[Operation]) -> list[str | Node | None]: ...

    async def end_session(self, session: int) -> None: ...


class StoreServer:
    def __init__(self, store: SessionStore, network: Network, logger: Logger) -> None:
        self._store = store
        self._network = network
        self._logger = logger
        self._listener: Listener | None = None
        self._sessions: dict[StoreSession, asyncio.Task[None]] = {}
        self._last_session = OUR_SESSION
        self._ticking: asyncio.Task[None] | None = None

    async def start(self, path: str) -> None:
        self._listener = await self._network.listen(path, messages.PORT, self._accept)
        self._ticking = asyncio.ensure_future(self._expire_silent_sessions())

    async def close(self) -> None:
        """Close all connections. Ephemeral nodes that could not be removed are removed at the next start of
        the store.
        """
        if self._listener is None or self._ticking is None:
            return
        self._listener.close()
        for task in (self._ticking, *self._sessions.values()):
            task.cancel()
        await asyncio.gather(self._ticking, *self._sessions.values(), return_exceptions=True)

    def _accept(self, socket: Socket) -> bool:
        self._last_session += 1
        session = StoreSession(self._last_session, self._store, socket, self._logger)
        task = asyncio.ensure_future(session.run())
        self._sessions[session] = task
        task.add_done_callback(lambda _: self._sessions.pop(session))
        return True

    async def _expire_silent_sessions(self) -> None:
        loop = asyncio.get_running_loop()
        last_tick = loop.time()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = loop.time()
            was_suspended = now - last_tick > MAX_TICK_SECONDS
            last_tick = now
            for session in list(self._sessions):
                if was_suspended:
                    session.heard_at = now
                elif now - session.heard_at > session.timeout_s:
                    session.expire()


class StoreSession:
    def __init__(self, number: int, store: SessionStore, socket: Socket, logger: Logger) -> None:
        self._number = number
        self._store = store
        self._logger = logger
        self._loop = asyncio.get_running_loop()
        self.heard_at = self._loop.time()
        """Time of the last message from the client, on the clock of the event loop."""
        self.timeout_s = MAX_TICK_SECONDS
        self._calls: asyncio.Queue[messages.Call | None] = asyncio.Queue()
        self._watches: dict[str, Callable[[], None]] = {}
        self._stream = FrameStream(socket, messages.MAX_FRAME_BYTES, self._on_frame, self._on_lost)

    def expire(self) -> None:
        self._logger.warning("session expired", session=self._number, silent_seconds=round(self.timeout_s))
        self._stream.close()

    async def run(self) -> None:
        """Carry out requests in order until the session ends, then remove its ephemeral nodes."""
        try:
            while (call := await self._calls.get()) is not None and self._stream.is_open:
                if isinstance(call, messages.End):
                    await self._remove_ephemeral_nodes()
                    self._send(messages.Results(call.id, []))
                    return
                self._send(await self._answer(call))
        except (ProtocolError, ValueError, TypeError, IndexError) as error:
            self._logger.error_rarely("invalid request to the store", error)
        finally:
            for stop_watch in self._watches.values():
                stop_watch()
            self._stream.close()
        await self._remove_ephemeral_nodes()

    async def _remove_ephemeral_nodes(self) -> None:
        while True:
            try:
                await self._store.end_session(self._number)
            except (StorageError, UnknownOutcome) as error:
                self._logger.error_rarely("ephemeral nodes of an ended session could not be removed", error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _answer(self, call: messages.Call) -> messages.Answer:
        try:
            if isinstance(call, messages.Read):
                nodes = await self._store.get_many(call.paths)
                return messages.Nodes(call.id, messages.pack_nodes(nodes))
            if isinstance(call, messages.List):
                return messages.Names(call.id, await self._store.children(call.path))
            assert isinstance(call, messages.Write)
            operations = messages.unpack_operations(call.operations)
            results = await self._store.multi_of(self._number, operations)
            return messages.Results(call.id, messages.pack_results(results))
        except PenstockError as error:
            return messages.refusal(call.id, error)

    def _on_frame(self, frame: memoryview) -> None:
        self.heard_at = self._loop.time()
        request = messages.decode_request(frame)
        if isinstance(request, messages.Open):
            self.timeout_s = request.session_timeout_ms / 1000
            self._send(messages.Opened())
        elif isinstance(request, messages.Watch):
            if request.path not in self._watches:
                changed = partial(self._send, messages.Changed(request.path))
                self._watches[request.path] = self._store.watch(request.path, changed)
        elif not isinstance(request, messages.Ping):
            self._calls.put_nowait(request)

    def _on_lost(self, _: ConnectionLost) -> None:
        self._calls.put_nowait(None)

    def _send(self, response: messages.Response) -> None:
        self._stream.send(messages.encode(response))
