"""Connections to brokers by address: one for each, opened at its first use and shared by all callers.

Requests that wait at the broker need connections of their own. A shared connection that has received no
response for RESPONSE_SECONDS counts as lost, because a network may drop all of its packets unnoticed. A port
that speaks another protocol is recognised by its first response (`NotKafka`). Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from penstock.config import Address
from penstock.internal_client.api import RESPONSE_SECONDS
from penstock.net.acting import own_context
from penstock.net.broker_connection import BrokerConnection
from penstock.net.network import Network
from penstock.unreachable import ConnectionLost, NotKafka, Unreachable
from penstock.wire.foreign_protocol import TLS, foreign_protocol, tls_client_hello

T = TypeVar("T")

CONNECT_SECONDS = 3.0
Request = Callable[[BrokerConnection], Awaitable[T]]
"""Request as a function of the connection, which is chosen when the request is sent."""


class BrokerConnections:
    def __init__(self, network: Network, client_id: str) -> None:
        self._network = network
        self._client_id = client_id
        self._open: dict[Address, BrokerConnection] = {}
        self._opening: dict[Address, asyncio.Task[BrokerConnection]] = {}

    @property
    def addresses(self) -> Iterable[Address]:
        """Addresses to which a shared connection was opened."""
        return tuple(self._open)

    def close(self) -> None:
        for task in self._opening.values():
            task.cancel()
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    async def get(self, address: Address) -> BrokerConnection:
        """Return the shared connection to an address. Raises Unreachable if it cannot be opened."""
        connection = self.known(address)
        if connection is not None:
            return connection
        opening = self._opening.get(address)
        if opening is None:
            loop = asyncio.get_running_loop()
            opening = loop.create_task(self._open_shared(address), context=own_context())
            self._opening[address] = opening
            opening.add_done_callback(lambda _: self._opening.pop(address, None))
        return await asyncio.shield(opening)

    def known(self, address: Address) -> BrokerConnection | None:
        """Return the shared connection to an address if it is open and responds; otherwise None."""
        connection = self._open.get(address)
        if connection is None or not connection.is_connected:
            return None
        if connection.silent_seconds >= RESPONSE_SECONDS:
            connection.close()
            return None
        return connection

    async def open(self, address: Address) -> BrokerConnection:
        """Open a connection for the caller alone. Raises Unreachable if that fails."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await BrokerConnection.connect(
                    self._network, address.host, address.port, self._client_id
                )
        except OSError as error:
            raise Unreachable({address: error}) from error

    async def send(self, address: Address, request: Request[T], timeout_seconds: float | None = None) -> T:
        """Send a request on the shared connection. Raises Unreachable if no response arrives in time."""
        connection = await self.get(address)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await request(connection)
        except Unreachable:
            raise
        except OSError as error:
            raise Unreachable({address: error}) from error

    async def explain(self, address: Address, error: OSError) -> OSError:
        """Return the error, or NotKafka in its place if a TLS listener closed the connection without a response."""
        connection = self._open.get(address)
        if isinstance(error, ConnectionLost) and connection is not None and not connection.has_received:
            with suppress(OSError):
                if await self._speaks_tls(address):
                    return NotKafka(TLS)
        return error

    async def _open_shared(self, address: Address) -> BrokerConnection:
        self._open.pop(address, None)
        connection = self._open[address] = await self.open(address)
        return connection

    async def _speaks_tls(self, address: Address) -> bool:
        async with asyncio.timeout(CONNECT_SECONDS):
            socket = await self._network.connect(address.host, address.port)
            try:
                readable = asyncio.Event()
                socket.on_readable(readable.set)
                socket.sendmsg((tls_client_hello(),), False)
                await readable.wait()
                received = bytearray(2)
                count = socket.recv_into(memoryview(received))
                return foreign_protocol(bytes(received[:count])) == TLS
            finally:
                socket.close()
