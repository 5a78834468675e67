"""Bootstrap addresses of other protocols: the client recognises and names each of them at once."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from penstock import Admin, BrokerUnreachable, Consumer, Producer
from penstock.cli.main import run
from penstock.client.bootstrap import client_settings
from penstock.client.probe import is_plaintext
from support.stopwatch import Stopwatch

AT_ONCE_S = 3.0
"""Below the five seconds that a client waits for a broker to come up."""
HTTP_ANSWER = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
CLIENTS = (
    lambda address: Producer(address),
    lambda address: Consumer("orders", bootstrap=address),
    lambda address: Admin(address),
)


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Listen on a port, call `serve` for each connection, and close it afterwards."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                serve(connection)

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def answer_http(connection: socket.socket) -> None:
    connection.recv(1024)
    connection.sendall(HTTP_ANSWER)


def answer_tls(connection: socket.socket) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with pytest.raises(ssl.SSLError):
        context.wrap_socket(connection, server_side=True)


def answer_smtp(connection: socket.socket) -> None:
    connection.sendall(b"220 mail.example ESMTP\r\n")


def stay_silent(connection: socket.socket) -> None:
    while connection.recv(1024):
        pass


@pytest.mark.parametrize("client", CLIENTS, ids=["Producer", "Consumer", "Admin"])
@pytest.mark.parametrize(
    ("serve", "named"),
    [
        (answer_http, "speaks HTTP"),
        (answer_tls, "speaks TLS"),
        (answer_smtp, "does not speak the Kafka protocol"),
    ],
)
def test_a_port_with_another_protocol_is_named_at_once(
    client: Callable[[str], object], serve: Callable[[socket.socket], None], named: str
) -> None:
    with listening(serve) as address:
        stopwatch = Stopwatch()
        with pytest.raises(BrokerUnreachable, match=rf"{address} \(this port {named}"):
            client(address)
        assert stopwatch.seconds < AT_ONCE_S


@pytest.mark.parametrize(
    "command", [("topic", "list"), ("produce", "orders"), ("consume", "orders"), ("cluster", "status")]
)
def test_the_command_line_names_an_http_port_given_as_bootstrap(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with listening(answer_http) as address:
        stopwatch = Stopwatch()
        assert run([*command, "--bootstrap", address]) == 1
        assert stopwatch.seconds < AT_ONCE_S
    assert f"{address} (this port speaks HTTP, not the Kafka protocol" in capsys.readouterr().err


@pytest.mark.slow
def test_a_silent_port_is_left_to_the_client_library() -> None:
    with listening(stay_silent) as address:
        assert client_settings(address, 5.0)["bootstrap.servers"] == address


def test_a_broker_beside_a_wrong_port_is_used(bootstrap: str) -> None:
    with listening(answer_http) as address:
        assert Admin(f"{address},{bootstrap}").topics.list() is not None


def test_tls_clients_connect_without_a_plaintext_request() -> None:
    with listening(answer_http) as address:
        client_settings(address, 5.0, {"security.protocol": "SSL"})
    assert not is_plaintext("sasl_ssl")
    assert is_plaintext("SASL_PLAINTEXT")
