"""A long response is sent in turns, so that other connections are served in between."""

from __future__ import annotations

import asyncio

import pytest
from test_connection import Server

from penstock.records.log_slice import LogSlice


class MemoryFile:
    """A file of zeros in memory."""

    def pread(self, position: int, length: int) -> bytes:
        return bytes(length)

    def pread_cached(self, position: int, length: int) -> bytes | None:
        return bytes(length)

    def is_cached(self, position: int, length: int) -> bool:
        return True

    def fileno(self) -> int | None:
        return None


@pytest.mark.parametrize(("step", "turns"), [(0.0, 5), (1.0, 20)])
def test_long_response_is_sent_in_turns(step: float, turns: int) -> None:
    """A turn has a megabyte, or a piece where each takes long; a request meanwhile is handled, and answered behind."""

    async def scenario() -> None:
        server = Server(max_unsent=100 << 20)
        server.clock.step = step
        length = 5 << 20
        server.answers[b"long"] = [LogSlice(MemoryFile(), 0, length)]
        server.receive(b"long")
        seen = {len(server.socket.sent)}
        server.receive(b"x")
        assert server.handled == [b"long", b"x"]
        while len(server.socket.sent) < length + 1:
            await asyncio.sleep(0)
            seen.add(len(server.socket.sent))
        assert bytes(server.socket.sent) == bytes(length) + b"x"
        assert len(seen - {length, length + 1}) == turns - 1
        assert server.connection.is_waiting is False

    asyncio.run(scenario())


def test_connection_may_close_between_turns() -> None:
    async def scenario() -> None:
        server = Server(max_unsent=100 << 20)
        server.answers[b"long"] = [LogSlice(MemoryFile(), 0, 5 << 20)]
        server.receive(b"long")
        sent = len(server.socket.sent)
        server.connection.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(server.socket.sent) == sent
        assert server.errors == [None]

    asyncio.run(scenario())
