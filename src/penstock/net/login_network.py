"""`Network` whose outgoing connections log in before they are used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from penstock.net.acting import own_requests
from penstock.net.broker_connection import BrokerConnection
from penstock.net.network import Listener, Network, Socket

CLIENT_ID = "penstock-login"


class LoginNetwork:
    def __init__(self, network: Network, log_in: Callable[[BrokerConnection], Awaitable[None]]) -> None:
        """`log_in` makes the requests of a login. If it raises an error, the connection is closed."""
        self._network = network
        self._log_in = log_in

    async def listen(self, host: str, port: int, accept: Callable[[Socket], bool]) -> Listener:
        return await self._network.listen(host, port, accept)

    async def connect(self, host: str, port: int) -> Socket:
        connection = BrokerConnection(await self._network.connect(host, port), CLIENT_ID)
        try:
            with own_requests():
                await self._log_in(connection)
        except BaseException:
            connection.close()
            raise
        return connection.detach()
