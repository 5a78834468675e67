"""TLS sockets over pipes in memory, in both directions and with every kind of short read and write."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typing_extensions import Buffer

from penstock.net.handshake_turns import HandshakeTurns
from penstock.net.tls_socket import PIECE_BYTES, TlsSocket
from penstock.records.log_slice import SliceFile
from penstock.security.tls_context import TlsSettings, load_client, load_server
from support.certificates import TestAuthority, now_ms
from support.eventually import eventually_async


class PipeEnd:
    """One end of a connection in memory, which takes at most `room` bytes that the other has not read."""

    def __init__(self, room: int) -> None:
        self.peer = "127.0.0.1:1"
        self.other: PipeEnd = self
        self.received = bytearray()
        self.room = room
        self.has_ended = self.is_closed = False
        self.reader: Callable[[], None] | None = None
        self.writer: Callable[[], None] | None = None

    def recv_into(self, buffer: memoryview) -> int:
        if not self.received:
            if self.has_ended:
                return 0
            raise BlockingIOError
        count = min(len(buffer), len(self.received))
        buffer[:count] = self.received[:count]
        del self.received[:count]
        self.other.wake()
        self.wake()
        return count

    def sendmsg(self, buffers: Sequence[Buffer], more: bool) -> int:
        if self.other.is_closed:
            raise BrokenPipeError
        content = b"".join(bytes(buffer) for buffer in buffers)[: self.room - len(self.other.received)]
        if not content:
            raise BlockingIOError
        self.other.received += content
        self.other.wake()
        return len(content)

    def sendfile(self, file: SliceFile, position: int, length: int) -> int:
        raise NotImplementedError

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        self.reader = callback
        self.wake()

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        self.writer = callback
        self.wake()

    def wake(self) -> None:
        asyncio.get_running_loop().call_soon(self._call)

    def _call(self) -> None:
        if self.reader is not None and (self.received or self.has_ended):
            self.reader()
            self.wake()
        if self.writer is not None and len(self.other.received) < self.room:
            self.writer()

    def close(self) -> None:
        self.is_closed = True
        self.other.has_ended = True
        self.reader = self.writer = None
        self.other.wake()


def pipe(room: int) -> tuple[PipeEnd, PipeEnd]:
    one, other = PipeEnd(room), PipeEnd(room)
    one.other, other.other = other, one
    return one, other


class Reading:
    """Reader of a socket with a small buffer, as a connection reads: once for each call back."""

    def __init__(self, socket: TlsSocket, buffer_bytes: int) -> None:
        self.content = bytearray()
        self.ended: str | None = None
        self.socket = socket
        self._buffer = memoryview(bytearray(buffer_bytes))
        socket.on_readable(self._on_readable)

    def _on_readable(self) -> None:
        try:
            count = self.socket.recv_into(self._buffer)
        except BlockingIOError:
            return
        except ConnectionError as error:
            self.ended = str(error)
            self.socket.on_readable(None)
            return
        if count == 0:
            self.ended = ""
            self.socket.on_readable(None)
        self.content += self._buffer[:count]


def send_all(socket: TlsSocket, content: bytes) -> None:
    left = memoryview(content)

    def go_on() -> None:
        nonlocal left
        try:
            while left:
                left = left[socket.sendmsg((left[:3], left[3:]), False) :]
        except BlockingIOError:
            socket.on_writable(go_on)
            return
        socket.on_writable(None)

    go_on()


class Pair:
    def __init__(self, directory: Path, room: int = 1 << 20, **server: str) -> None:
        authority = TestAuthority(directory)
        settings = TlsSettings(str(authority.issue("broker")), authorities=str(authority.file))
        self.server_context = load_server(settings, now_ms()).context
        self.client_context = load_client(TlsSettings(authorities=str(authority.file)), now_ms()).context
        self.client_end, self.server_end = pipe(room)
        self.ends: list[str | None] = []

    def connect(self, name: str = "localhost", seconds: float = 10.0) -> tuple[TlsSocket, TlsSocket]:
        turns = HandshakeTurns()
        server = TlsSocket(
            self.server_end,
            lambda incoming, outgoing: self.server_context.wrap_bio(incoming, outgoing, server_side=True),
            turns,
            seconds,
            lambda _, reason: self.ends.append(reason),
        )
        client = TlsSocket(
            self.client_end,
            lambda incoming, outgoing: self.client_context.wrap_bio(incoming, outgoing, server_hostname=name),
            turns,
            seconds,
            lambda _, reason: self.ends.append(reason),
        )
        client.begin()
        return client, server


@pytest.mark.parametrize("room", [700, 20_000, 1 << 20])
@pytest.mark.parametrize("buffer_bytes", [1_000, 70_000])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_bytes_arrive_in_both_directions(
    tmp_path: Path, room: int, buffer_bytes: int, version: ssl.TLSVersion
) -> None:
    async def scenario() -> None:
        pair = Pair(tmp_path, room)
        pair.client_context.maximum_version = version
        client, server = pair.connect()
        content = bytes(range(256)) * 1_200
        assert len(content) > 2 * PIECE_BYTES
        at_server, at_client = Reading(server, buffer_bytes), Reading(client, buffer_bytes)
        send_all(client, content)
        send_all(server, content[::-1])
        await eventually_async(lambda: len(at_server.content) == len(at_client.content) == len(content))
        assert bytes(at_server.content) == content
        assert bytes(at_client.content) == content[::-1]
        assert pair.ends == [None, None]
        client.close()
        await eventually_async(lambda: at_server.ended == "")

    asyncio.run(scenario())


def test_bytes_left_in_the_tls_object_are_delivered_when_reading_resumes(tmp_path: Path) -> None:
    async def scenario() -> None:
        client, server = Pair(tmp_path).connect()
        reading = Reading(server, 100)
        await eventually_async(lambda: server.is_established and client.is_established)
        server.on_readable(None)
        send_all(client, b"x" * 1_000)
        await asyncio.sleep(0.01)
        assert not reading.content
        server.on_readable(reading._on_readable)
        await eventually_async(lambda: len(reading.content) == 1_000)

    asyncio.run(scenario())


@pytest.mark.parametrize("content", [b"", b"last words"])
def test_close_notify_ends_the_connection_of_a_peer_that_waits(tmp_path: Path, content: bytes) -> None:
    """asyncio's clients close the connection only when the other side has closed it, or after half a minute."""

    async def scenario() -> None:
        client, server = Pair(tmp_path).connect()
        reading = Reading(server, 100)
        await eventually_async(lambda: server.is_established and client.is_established)
        assert client.tls is not None
        if content:
            client.tls.write(content)
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.unwrap()
        client._flush_quietly()
        await eventually_async(lambda: reading.ended == "")
        assert bytes(reading.content) == content

    asyncio.run(scenario())


def test_wrong_name_in_the_certificate_is_refused_by_the_client(tmp_path: Path) -> None:
    async def scenario() -> None:
        pair = Pair(tmp_path)
        _, server = pair.connect("other.example")
        reading = Reading(server, 100)
        await eventually_async(lambda: len(pair.ends) == 2)
        assert any("Hostname mismatch" in (reason or "") for reason in pair.ends)
        await eventually_async(lambda: reading.ended is not None)

    asyncio.run(scenario())


def test_silent_peer_is_refused_after_the_timeout(tmp_path: Path) -> None:
    async def scenario() -> None:
        pair = Pair(tmp_path)
        server = TlsSocket(
            pair.server_end,
            lambda incoming, outgoing: pair.server_context.wrap_bio(incoming, outgoing, server_side=True),
            HandshakeTurns(),
            0.01,
            lambda _, reason: pair.ends.append(reason),
        )
        reading = Reading(server, 100)
        await eventually_async(lambda: reading.ended is not None)
        assert pair.ends == ["the handshake took too long"]
        assert server.tls is None

    asyncio.run(scenario())


OTHER_PROTOCOLS = (
    b"\0\0\0\x10\0\x12\0\0junkjunkjunk",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x40\0" + bytes(70_000),
)


@pytest.mark.parametrize("first", OTHER_PROTOCOLS)
def test_other_protocols_are_refused(tmp_path: Path, first: bytes) -> None:
    async def scenario() -> None:
        pair = Pair(tmp_path)
        server = TlsSocket(
            pair.server_end,
            lambda incoming, outgoing: pair.server_context.wrap_bio(incoming, outgoing, server_side=True),
            HandshakeTurns(),
            10,
            lambda _, reason: pair.ends.append(reason),
        )
        reading = Reading(server, 100)
        pair.client_end.on_readable(lambda: pair.client_end.received.clear())
        pair.client_end.sendmsg((first,), False)
        await eventually_async(lambda: reading.ended is not None)
        assert pair.ends[0] is not None

    asyncio.run(scenario())


def test_peer_that_ends_without_a_close_notify_has_ended(tmp_path: Path) -> None:
    async def scenario() -> None:
        pair = Pair(tmp_path)
        client, server = pair.connect()
        reading = Reading(server, 100)
        await eventually_async(lambda: server.is_established and client.is_established)
        pair.client_end.close()
        await eventually_async(lambda: reading.ended == "")

    asyncio.run(scenario())


def test_storm_of_empty_records_is_ended(tmp_path: Path) -> None:
    """Records without content, as KeyUpdates are, cost processor time and carry no request."""

    async def scenario() -> None:
        pair = Pair(tmp_path)
        client, server = pair.connect()
        reading = Reading(server, 1_000)
        await eventually_async(lambda: server.is_established and client.is_established)
        server._silent_bytes = 60_000
        send_all(client, b"x")
        await eventually_async(lambda: bytes(reading.content) == b"x")
        assert server._silent_bytes == 0
        server._silent_bytes = 65_536
        assert client.tls is not None
        client.tls.write(b"a record that is cut")
        cut = client._outgoing.read()
        pair.client_end.sendmsg((cut[:-1],), False)
        await eventually_async(lambda: reading.ended is not None)
        assert "without content" in (reading.ended or "")

    asyncio.run(scenario())


class InterruptedPipeEnd(PipeEnd):
    """Pipe whose reads end only after another thread has run `meanwhile`."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)
    reads = 0

    def recv_into(self, buffer: memoryview) -> int:
        count = super().recv_into(buffer)
        self.reads += 1
        thread = threading.Thread(target=self.meanwhile)
        thread.start()
        thread.join()
        return count


def test_connections_of_several_threads_do_not_mix_their_bytes(tmp_path: Path) -> None:
    """A gateway checks passwords by logins in threads of their own, beside its connections to brokers."""

    async def exchange(pair: Pair) -> None:
        client, server = pair.connect()
        await eventually_async(lambda: len(pair.ends) == 2)
        assert pair.ends == [None, None]
        at_server, at_client = Reading(server, 1_000), Reading(client, 1_000)
        send_all(client, b"request")
        send_all(server, b"response")
        await eventually_async(lambda: bytes(at_server.content + at_client.content) == b"requestresponse")

    async def scenario() -> None:
        pair = Pair(tmp_path / "one")
        end = InterruptedPipeEnd(1 << 20)
        end.other, pair.server_end.other, pair.client_end = pair.server_end, end, end

        exchanged: list[str] = []

        def meanwhile() -> None:
            number = str(len(exchanged))
            asyncio.run(exchange(Pair(tmp_path / number)))
            exchanged.append(number)

        end.meanwhile = meanwhile
        await exchange(pair)
        assert len(exchanged) == end.reads

    asyncio.run(scenario())
