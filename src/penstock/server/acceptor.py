"""Acceptor of client connections at all listeners: enforces the connection limits and closes stalled connections.

All connections are checked about once a second, a part of them in each turn of the event loop. A connection is closed
when its client does not finish a request, does not read its responses, or has sent nothing for a long time. Loop thread
only.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from penstock.config import (
    CONNECTION_WRITE_TIMEOUT_MS,
    CONNECTIONS_MAX_IDLE_MS,
    MAX_CONNECTION_CREATION_RATE,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    QUEUED_MAX_REQUEST_BYTES,
    REQUEST_RECEIVE_TIMEOUT_MS,
)
from penstock.config.settings import ListenerConfig
from penstock.net.connection import Connection, Traffic
from penstock.net.network import Listener, Network, Socket
from penstock.net.request_memory import RequestMemory
from penstock.observability.logs import Logger
from penstock.security.user import User
from penstock.server.context import BrokerContext
from penstock.server.dispatch import Dispatcher, Session
from penstock.server.door import Door
from penstock.server.sasl.gate import Gate
from penstock.server.security import ANONYMOUS

_SHORTEST_ROUND_SECONDS = 1.0
_CONNECTIONS_PER_SWEEP = 100
_MAX_SWEEPS_PER_SECOND = 25
_ACCEPTING_SECONDS = 0.95
"""Length in seconds of the window in which accepted connections are counted for `max.connection.creation.rate`. A
little less than a second, because the timer that resets the count may fire a moment early.
"""
_HOG_PATIENCE_MS = 5_000


@dataclass(slots=True)
class WatchedConnection:
    session: Session
    door: Door
    progress: int
    since: float
    opened: float
    """Monotonic time in seconds at which the connection was accepted."""
    gate: Gate | None = None


class Acceptor:
    def __init__(self, context: BrokerContext, dispatcher: Dispatcher, logger: Logger) -> None:
        config = context.config
        self.traffic = Traffic(RequestMemory(config[QUEUED_MAX_REQUEST_BYTES]), context.clock)
        self._context = context
        self._dispatcher = dispatcher
        self._logger = logger
        self._accepted_this_second = 0
        self._waiting: list[tuple[Door, Socket]] | None = []
        self._watched: dict[Connection, WatchedConnection] = {}
        context.connections, context.traffic, context.recent_lines = (
            self._watched,
            self.traffic,
            logger.recent,
        )
        self._by_host: Counter[str] = Counter()
        self._listeners: list[Listener] = []
        self._is_closed = False
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._sweeps_left = 0
        self._sweep_seconds = _SHORTEST_ROUND_SECONDS
        self._second_ends = 0.0
        self._unswept: list[Connection] = []

    @property
    def connections(self) -> int:
        return len(self._watched)

    async def listen(self, network: Network, door: Door) -> int:
        """Bind a listener; connections wait in its backlog until `open`. Returns the bound port."""
        address = door.listener.address
        listener = await network.listen(address.host, address.port, partial(self._accept, door))
        self._listeners.append(listener)
        return listener.port

    def open(self) -> None:
        """Serve the connections that wait since `listen`, and accept new ones."""
        if self._is_closed:
            return
        waiting, self._waiting = self._waiting, None
        for door, socket in waiting or ():
            self._accept(door, socket)
        self._schedule_sweep()

    def close_listeners(self) -> None:
        """Stop accepting connections; open connections are kept."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def close(self) -> None:
        """Stop accepting and close every connection; a later call of `open` does nothing."""
        self._is_closed = True
        self.close_listeners()
        for _, socket in self._waiting or ():
            socket.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in tuple(self._watched):
            connection.close()

    def on_users(self, before: Mapping[str, User], after: Mapping[str, User]) -> None:
        """Close the connections of users that were deleted, disabled or changed."""
        changed = {name for name in before if before[name] != after.get(name)}
        if not changed:
            return
        for connection, watched in tuple(self._watched.items()):
            login = watched.session.login
            if login is None or login.user not in changed or not login.credential:
                continue
            user = after.get(login.user)
            if user is None or user.is_disabled or user.credential != login.credential:
                connection.close()

    def _accept(self, door: Door, socket: Socket) -> bool:
        """Take a new connection. Returns False if the listener has to pause before it accepts further connections."""
        if self._waiting is not None:
            self._waiting.append((door, socket))
            return False
        self._accepted_this_second += 1
        host = socket.peer.rpartition(":")[0]
        if (
            self.connections >= self._context.config[MAX_CONNECTIONS]
            or door.connections >= door.config[MAX_CONNECTIONS]
            or self._by_host[host] >= door.config[MAX_CONNECTIONS_PER_IP]
            or not self._is_within_quota(host)
        ):
            self._context.metrics.refused("connection limit")
            self._logger.warning_rarely(
                "connection refused: too many connections", host=host, connections=self.connections
            )
            socket.close()
            return self._accepts_more()
        number = self._context.connection_numbers.next()
        session = Session(socket.peer, host, ANONYMOUS, number, listener=door.listener.name)
        connection = Connection(
            door.wrap(socket, session),
            partial(self._dispatcher.dispatch, session),
            self._on_close,
            limits=door.limits,
            threads=self._context.threads,
            traffic=self.traffic,
        )
        session.mute = connection.mute
        gate = None
        if door.sasl is not None:
            gate = Gate(session, self._dispatcher, door.sasl)
            gate.attach(connection, door.login_seconds)
        now = self._context.clock.monotonic()
        self._watched[connection] = WatchedConnection(session, door, 0, now, now, gate)
        self._by_host[host] += 1
        door.connections += 1
        return self._accepts_more()

    def _is_within_quota(self, host: str) -> bool:
        """True if the quota of an IP address for new connections (`connection_creation_rate`) admits one more."""
        quotas = self._context.quotas
        return quotas is None or quotas.admits_connection(host)

    def _accepts_more(self) -> bool:
        return self._accepted_this_second < self._context.config[MAX_CONNECTION_CREATION_RATE]

    def _on_close(self, connection: Connection, error: Exception | None) -> None:
        watched = self._watched.pop(connection)
        session = watched.session
        watched.door.connections -= 1
        if watched.gate is not None:
            watched.gate.close()
        self._by_host[session.host] -= 1
        if not self._by_host[session.host]:
            del self._by_host[session.host]
        self._context.fetch_sessions.close(session)
        self._context.share.sessions.close_all_of(session)
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
        """Check a part of the connections: to check thousands in one turn of the loop would delay requests."""
        if self._sweeps_left == 0:
            self._begin_round()
        part = -(-len(self._unswept) // self._sweeps_left)
        self._sweeps_left -= 1
        now = self._context.clock.monotonic()
        if now >= self._second_ends:
            self._second_ends = now + _ACCEPTING_SECONDS
            self._accepted_this_second = 0
        for _ in range(part):
            connection = self._unswept.pop()
            watched = self._watched.get(connection)
            if watched is None:
                continue
            if watched.gate is not None and watched.gate.has_expired:
                connection.close()
                continue
            if connection.progress != watched.progress or connection.is_waiting:
                watched.progress, watched.since = connection.progress, now
            elif (now - watched.since) * 1000 > _patience_ms(connection, watched.door.config):
                connection.close(_reproach(connection))
        self._schedule_sweep()

    def _begin_round(self) -> None:
        """Begin a round of checks over all connections. With thousands of connections a round takes a few seconds,
        which is less than any limit on a stall.
        """
        self._unswept = list(self._watched)  # without values, so that no pairs are allocated and collected
        self._sweeps_left = max(1, -(-len(self._unswept) // _CONNECTIONS_PER_SWEEP))
        self._sweep_seconds = max(_SHORTEST_ROUND_SECONDS / self._sweeps_left, 1 / _MAX_SWEEPS_PER_SECOND)


def _patience_ms(connection: Connection, config: ListenerConfig) -> int:
    """Time in milliseconds that a connection may stall. Short for a connection that holds request memory for which
    other connections wait.
    """
    if connection.hogs_memory:
        return _HOG_PATIENCE_MS
    if connection.owes_reading:
        return config[CONNECTION_WRITE_TIMEOUT_MS]
    if connection.owes_sending:
        return config[REQUEST_RECEIVE_TIMEOUT_MS]
    return config[CONNECTIONS_MAX_IDLE_MS]


def _reproach(connection: Connection) -> TimeoutError | None:
    """Error with which a stalled connection is closed; None for a connection that is merely idle."""
    if connection.owes_reading:
        return TimeoutError("the client did not read a response in time")
    if connection.owes_sending:
        return TimeoutError("the client did not send the rest of a request in time")
    return None
