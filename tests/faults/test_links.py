"""The links of the fault tests: cut, held and healed connections, without effect on other links."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from links import Links

PATIENCE_S = 10.0


class Echo:
    """A server that echoes its input."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(4096):
                    connection.sendall(data)
            except OSError:
                return


class Ends:
    """Connections of a named end, through the links, to an echo server."""

    def __init__(self) -> None:
        self.links = Links()
        self.echo = Echo()
        self._who: dict[int, str] = {}
        self._port = self.links.listen("echo", self.echo.port, lambda port: self._who[port])

    def connect(self, who: str) -> socket.socket:
        connection = socket.socket()
        connection.bind(("127.0.0.1", 0))
        self._who[connection.getsockname()[1]] = who
        connection.settimeout(PATIENCE_S)
        try:
            connection.connect(("127.0.0.1", self._port))
        except OSError:
            connection.close()
            raise
        return connection

    def is_refused(self, who: str) -> bool:
        """Whether a new connection is reset or closed, while it connects or at its first read."""
        try:
            connection = self.connect(who)
        except ConnectionError:
            return True
        with connection:
            return ended(connection)


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.links.close()
    made.echo.close()


def echoed(connection: socket.socket, text: bytes) -> bytes:
    connection.sendall(text)
    return connection.recv(100)


def ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_cut_link_resets_and_refuses_connections_until_healed(ends: Ends) -> None:
    with ends.connect("anna") as anna, ends.connect("bert") as bert:
        assert echoed(anna, b"1") == b"1"
        assert echoed(bert, b"1") == b"1"
        ends.links.cut("anna", "echo")
        with pytest.raises(ConnectionResetError):
            anna.recv(1)
        assert echoed(bert, b"2") == b"2"
    assert ends.is_refused("anna")
    ends.links.heal()
    with ends.connect("anna") as healed:
        assert echoed(healed, b"4") == b"4"


@pytest.mark.parametrize("way", ["requests", "answers"])
def test_held_bytes_arrive_when_the_link_is_healed(ends: Ends, way: str) -> None:
    with ends.connect("anna") as anna, ends.connect("bert") as bert:
        assert echoed(anna, b"1") == b"1"
        ends.links.hold("anna", "echo", requests=way == "requests", answers=way == "answers")
        anna.sendall(b"2")
        anna.settimeout(0.1)
        with pytest.raises(TimeoutError):
            anna.recv(1)
        assert echoed(bert, b"3") == b"3"
        ends.links.heal()
        anna.settimeout(PATIENCE_S)
        assert anna.recv(1) == b"2"


def test_a_slow_link_takes_its_time(ends: Ends) -> None:
    with ends.connect("anna") as anna:
        ends.links.slow("anna", "echo", 0.05)
        started = time.monotonic()
        assert echoed(anna, b"1") == b"1"
        assert time.monotonic() - started >= 0.1


def test_an_end_that_closes_is_seen_by_the_other(ends: Ends) -> None:
    ends.echo.close()
    assert ends.is_refused("anna")
