"""`Network` whose outgoing connections use TLS; listeners are those of the inner network."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from penstock.net.handshake_turns import HandshakeTurns
from penstock.net.network import Listener, Network, Socket
from penstock.net.tls_socket import TlsSocket

HANDSHAKE_SECONDS = 10.0


class TlsNetwork:
    def __init__(self, network: Network, context: Callable[[], ssl.SSLContext]) -> None:
        """`context` returns the TLS context for the next connection, so that certificates can change."""
        self._network = network
        self._context = context
        self._turns = HandshakeTurns()

    async def listen(self, host: str, port: int, accept: Callable[[Socket], bool]) -> Listener:
        return await self._network.listen(host, port, accept)

    async def connect(self, host: str, port: int) -> TlsSocket:
        """Connect and complete the handshake. The certificate of the peer must be for `host`."""
        inner = await self._network.connect(host, port)
        context = self._context()
        ended: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

        def on_end(_: TlsSocket, reason: str | None) -> None:
            if not ended.done():
                ended.set_result(reason)

        socket = TlsSocket(
            inner,
            lambda incoming, outgoing: context.wrap_bio(incoming, outgoing, server_hostname=host),
            self._turns,
            HANDSHAKE_SECONDS,
            on_end,
        )
        try:
            socket.begin()
            reason = await ended
        except BaseException:
            socket.close()
            raise
        if reason is not None:
            socket.close()
            raise TlsFailure(f"TLS with {host}:{port} failed: {reason}")
        return socket


class TlsFailure(ConnectionError):
    """TLS connection that could not be established. The message contains the reason."""
