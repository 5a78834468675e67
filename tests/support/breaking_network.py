"""A network whose connections break at random: before a request is sent, or when its response arrives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from typing_extensions import Buffer

from penstock.net.network import Listener, Network, Socket
from penstock.records.log_slice import SliceFile


class BreakingNetwork:
    def __init__(self, network: Network, random: Random, share: float) -> None:
        """Break this share of the reads and writes of connections that clients open here."""
        self._network = network
        self._random = random
        self.share = share

    async def listen(self, host: str, port: int, accept: Callable[[Socket], bool]) -> Listener:
        return await self._network.listen(host, port, accept)

    async def connect(self, host: str, port: int) -> Socket:
        return _BreakingSocket(await self._network.connect(host, port), self)

    def draw(self) -> None:
        if self._random.random() < self.share:
            raise ConnectionResetError("the connection was broken by the test")


class _BreakingSocket:
    def __init__(self, socket: Socket, network: BreakingNetwork) -> None:
        self._socket = socket
        self._network = network

    @property
    def peer(self) -> str:
        return self._socket.peer

    def recv_into(self, buffer: memoryview) -> int:
        count = self._socket.recv_into(buffer)
        self._network.draw()
        return count

    def sendmsg(self, buffers: Sequence[Buffer], more: bool) -> int:
        self._network.draw()
        return self._socket.sendmsg(buffers, more)

    def sendfile(self, file: SliceFile, position: int, length: int) -> int:
        return self._socket.sendfile(file, position, length)

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        self._socket.on_readable(callback)

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        self._socket.on_writable(callback)

    def close(self) -> None:
        self._socket.close()
