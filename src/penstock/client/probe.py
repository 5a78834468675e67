"""The check that a TCP port belongs to a Kafka broker, by the first bytes of its response to an ApiVersions request.

An HTTP server answers the request in its own protocol. Many TLS listeners close the connection without a response; a
TLS ClientHello on a second connection distinguishes them from a broker that is stopping. Kafka client libraries
interpret such responses as huge frames and retry until a timeout that does not name the cause.
"""

from __future__ import annotations

import socket
import struct
import time

from penstock.unreachable import NotKafka
from penstock.wire.apis import API_VERSIONS
from penstock.wire.foreign_protocol import OTHER, TLS, foreign_protocol, tls_client_hello

ANSWER_TIMEOUT_S = 1.0
"""Longest wait for the response. A port that is silent for this long may belong to a busy broker and is not
rejected.
"""
_CLIENT_ID = b"penstock"
_VERSION, _CORRELATION_ID = 0, 1
_REQUEST = struct.pack(
    f">ihhih{len(_CLIENT_ID)}s",
    10 + len(_CLIENT_ID),
    API_VERSIONS,
    _VERSION,
    _CORRELATION_ID,
    len(_CLIENT_ID),
    _CLIENT_ID,
)
_ANSWER = struct.Struct(">ii")
"""Start of every response: size and correlation id."""
_API_KEYS = struct.Struct(">hi")
"""Start of the body of an ApiVersions response: error code and number of APIs."""
_API_KEY = struct.Struct(">hhh")
"""Entry of an ApiVersions response: API key, lowest and highest version."""
MAX_ANSWER_BYTES = 65_536


def probe(host: str, port: int, timeout_s: float) -> frozenset[int]:
    """Return the API keys of the broker at the address; an empty set if the port sends nothing for `ANSWER_TIMEOUT_S`.

    Raises NotKafka for another protocol, and another OSError if the connection fails or is closed at once.
    """
    received = _exchange(host, port, timeout_s, _REQUEST)
    if received is None:
        return frozenset()
    if not received:
        if _speaks_tls(host, port, timeout_s):
            raise NotKafka(TLS)
        raise ConnectionResetError("the connection was closed without an answer")
    foreign = foreign_protocol(received)
    if foreign is not None:
        raise NotKafka(foreign)
    if len(received) >= _ANSWER.size and _ANSWER.unpack_from(received)[1] != _CORRELATION_ID:
        raise NotKafka(OTHER)
    return _api_keys(received)


def is_plaintext(security_protocol: object) -> bool:
    """Return True if a client with this `security.protocol` speaks the Kafka protocol without TLS."""
    return str(security_protocol or "plaintext").lower() in ("plaintext", "sasl_plaintext")


def _exchange(host: str, port: int, timeout_s: float, request: bytes) -> bytes | None:
    """Send a request and return the start of the response; the complete response if it comes from a Kafka broker.

    Returns fewer than eight bytes if the peer closes the connection, None if it sends nothing. Raises OSError if no
    connection can be made.
    """
    with socket.create_connection((host, port), timeout_s) as connection:
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        received = b""
        try:
            connection.sendall(request)
            while len(received) < (expected := _expected_bytes(received)):
                connection.settimeout(max(0.001, deadline - time.monotonic()))
                piece = connection.recv(expected - len(received))
                if not piece:
                    break
                received += piece
        except TimeoutError:
            return received or None
        except ConnectionError:
            pass
        return received


def _expected_bytes(received: bytes) -> int:
    """Number of bytes to read: the complete frame if it answers our request, else enough to recognise the protocol."""
    if len(received) < _ANSWER.size:
        return _ANSWER.size
    size, correlation_id = _ANSWER.unpack_from(received)
    is_answer = correlation_id == _CORRELATION_ID and 0 < size <= MAX_ANSWER_BYTES
    return 4 + size if is_answer else _ANSWER.size


def _api_keys(received: bytes) -> frozenset[int]:
    """Return the API keys of an ApiVersions response; the response may be truncated."""
    body = received[_ANSWER.size :]
    if len(body) < _API_KEYS.size:
        return frozenset()
    _, count = _API_KEYS.unpack_from(body)
    triples = body[_API_KEYS.size : _API_KEYS.size + count * _API_KEY.size]
    return frozenset(key for key, _, _ in _API_KEY.iter_unpack(triples[: len(triples) // 6 * 6]))


def _speaks_tls(host: str, port: int, timeout_s: float) -> bool:
    try:
        received = _exchange(host, port, timeout_s, tls_client_hello())
    except OSError:
        return False
    return received is not None and foreign_protocol(received) == TLS
