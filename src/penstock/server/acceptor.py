"""Acceptor of client connections: accepts within the limits, watches open connections and closes stalled
ones.

All connections are checked about every second, some in each turn of the loop. A stalled connection is
closed: a frame that does not end, responses that are not read, a client that has sent nothing for long.
Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

from penstock.config import (
    CONNECTION_MAX_IN_FLIGHT_BYTES,
    CONNECTION_MAX_IN_FLIGHT_REQUESTS,
    CONNECTION_WRITE_TIMEOUT_MS,
    CONNECTIONS_MAX_IDLE_MS,
    MAX_CONNECTION_CREATION_RATE,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    QUEUED_MAX_REQUEST_BYTES,
    REQUEST_RECEIVE_TIMEOUT_MS,
    SOCKET_REQUEST_MAX_BYTES,
    BrokerConfig,
)
from penstock.net.connection import Connection, ConnectionLimits, Traffic
from penstock.net.network import Listener, Network, Socket
from penstock.net.request_memory import RequestMemory
from penstock.observability.logs import Logger
from penstock.server.context import BrokerContext
from penstock.server.dispatch import Dispatcher, Session
from penstock.server.security import ANONYMOUS

_SHORTEST_ROUND_SECONDS = 1.0
_CONNECTIONS_PER_SWEEP = 100
_MAX_SWEEPS_PER_SECOND = 25
_ACCEPTING_SECONDS = 0.95
"""Length in seconds of one accept window: a little less than a round, whose timer may fire a moment early."""
_HOG_PATIENCE_MS = 5_000


@dataclass(slots=True)
class _Watched:
    session: Session
    progress: int
    since: float


class Acceptor:
    def __init__(self, context: BrokerContext, dispatcher: Dispatcher, logger: Logger) -> None:
        config = context.config
        self.traffic = Traffic(RequestMemory(config[QUEUED_MAX_REQUEST_BYTES]), context.clock)
        self._context = context
        self._dispatcher = dispatcher
        self._logger = logger
        self._limits = ConnectionLimits(
            max_frame_bytes=config[SOCKET_REQUEST_MAX_BYTES],
            max_in_flight_requests=config[CONNECTION_MAX_IN_FLIGHT_REQUESTS],
            max_unsent_bytes=config[CONNECTION_MAX_IN_FLIGHT_BYTES],
        )
        self._accepted_this_second = 0
        self._waiting: list[Socket] | None = []
        self._watched: dict[Connection, _Watched] = {}
        self._by_host: Counter[str] = Counter()
        self._listener: Listener | None = None
        self._is_closed = False
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._sweeps_left = 0
        self._sweep_seconds = _SHORTEST_ROUND_SECONDS
        self._second_ends = 0.0
        self._unswept: list[Connection] = []

    @property
    def connections(self) -> int:
        return len(self._watched)

    async def listen(self, network: Network, host: str, port: int) -> int:
        """Bind the listener; connections wait in its backlog until `open`. Returns the bound port."""
        self._listener = await network.listen(host, port, self._accept)
        return self._listener.port

    def open(self) -> None:
        """Serve waiting and new connections."""
        if self._is_closed:
            return
        waiting, self._waiting = self._waiting, None
        for socket in waiting or ():
            self._accept(socket)
        self._schedule_sweep()

    def close_listener(self) -> None:
        """Stop accepting; open connections stay."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def close(self) -> None:
        """Stop accepting and close every connection; an `open` afterwards does nothing."""
        self._is_closed = True
        self.close_listener()
        for socket in self._waiting or ():
            socket.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in tuple(self._watched):
            connection.close()

    def _accept(self, socket: Socket) -> bool:
        """Take a new connection; false when further ones have to wait a moment."""
        if self._waiting is not None:
            self._waiting.append(socket)
            return False
        self._accepted_this_second += 1
        host = socket.peer.rpartition(":")[0]
        config = self._context.config
        if (
            self.connections >= config[MAX_CONNECTIONS]
            or self._by_host[host] >= config[MAX_CONNECTIONS_PER_IP]
        ):
            self._context.metrics.refused("connection limit")
            self._logger.warning_rarely(
                "connection refused: too many connections", host=host, connections=self.connections
            )
            socket.close()
            return self._accepts_more()
        session = Session(socket.peer, host, ANONYMOUS, self._context.connection_numbers.next())
        connection = Connection(
            socket,
            lambda frame: self._dispatcher.dispatch(session, frame),
            self._on_close,
            limits=self._limits,
            threads=self._context.threads,
            traffic=self.traffic,
        )
        self._watched[connection] = _Watched(session, 0, self._context.clock.monotonic())
        self._by_host[host] += 1
        return self._accepts_more()

    def _accepts_more(self) -> bool:
        return self._accepted_this_second < self._context.config[MAX_CONNECTION_CREATION_RATE]

    def _on_close(self, connection: Connection, error: Exception | None) -> None:
        session = self._watched.pop(connection).session
        self._by_host[session.host] -= 1
        if not self._by_host[session.host]:
            del self._by_host[session.host]
        self._context.fetch_sessions.close(session)
        if session.follower is not None:
            session.follower.close()
        if session.keys is not None:
            session.keys.close()
        if error is not None:
            self._context.metrics.refused(type(error).__name__)
            self._logger.error_rarely("connection closed", error, peer=session.peer)

    def _schedule_sweep(self) -> None:
        self._sweep_timer = asyncio.get_running_loop().call_later(self._sweep_seconds, self._sweep)

    def _sweep(self) -> None:
        """Check some of the connections. All at once would delay requests where there are thousands."""
        if self._sweeps_left == 0:
            self._begin_round()
        part = -(-len(self._unswept) // self._sweeps_left)
        self._sweeps_left -= 1
        now = self._context.clock.monotonic()
        if now >= self._second_ends:
            self._second_ends = now + _ACCEPTING_SECONDS
            self._accepted_this_second = 0
        config = self._context.config
        for _ in range(part):
            connection = self._unswept.pop()
            watched = self._watched.get(connection)
            if watched is None:
                continue
            if connection.progress != watched.progress or connection.is_waiting:
                watched.progress, watched.since = connection.progress, now
            elif (now - watched.since) * 1000 > _patience_ms(connection, config):
                connection.close(_reproach(connection))
        self._schedule_sweep()

    def _begin_round(self) -> None:
        """Begin a round over all connections. Thousands take a few seconds, which is less than any limit on a
        stall.
        """
        self._unswept = list(self._watched)  # without values, so that no pairs are allocated and collected
        self._sweeps_left = max(1, -(-len(self._unswept) // _CONNECTIONS_PER_SWEEP))
        self._sweep_seconds = max(_SHORTEST_ROUND_SECONDS / self._sweeps_left, 1 / _MAX_SWEEPS_PER_SECOND)


def _patience_ms(connection: Connection, config: BrokerConfig) -> int:
    """Time in milliseconds that a connection may stall; short while other connections wait for the memory
    that it holds.
    """
    if connection.hogs_memory:
        return _HOG_PATIENCE_MS
    if connection.owes_reading:
        return config[CONNECTION_WRITE_TIMEOUT_MS]
    if connection.owes_sending:
        return config[REQUEST_RECEIVE_TIMEOUT_MS]
    return config[CONNECTIONS_MAX_IDLE_MS]


def _reproach(connection: Connection) -> TimeoutError | None:
    """Reason to close a stalled connection; None for one that is merely idle."""
    if connection.owes_reading:
        return TimeoutError("the client does not read a response")
    if connection.owes_sending:
        return TimeoutError("the client does not finish a request")
    return None
