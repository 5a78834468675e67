"""A closed connection is freed at once, without the garbage collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

from test_connection import Server

from penstock.net.connection import Connection, ConnectionLimits, Traffic
from penstock.net.response import Answer, PendingResponse
from penstock.threads import ThreadPools


class Handler:
    """The handler of a connection. Only the connection holds it, so it is freed together with the connection:
    compiled objects have no weak references.
    """

    def __init__(self, handle: Callable[[memoryview], Answer]) -> None:
        self._handle = handle

    def __call__(self, frame: memoryview) -> Answer:
        return self._handle(frame)


def test_closed_connection_leaves_no_reference_cycle() -> None:
    server, later = Server(), PendingResponse()
    handler = Handler(server.handle)
    server.connection = Connection(
        server.socket,
        handler,
        lambda _, error: server.errors.append(error),
        limits=ConnectionLimits(1_000, 100, 1_000),
        threads=ThreadPools(),
        traffic=Traffic(server.memory, server.clock),
    )
    later.when_abandoned(lambda: None)
    server.answers[b"wait"] = later
    server.receive(b"hello", b"wait")
    freed = weakref.ref(handler)
    del handler
    gc.collect()
    gc.disable()
    try:
        server.connection.close()
        server.answers.clear()
        del server.connection, later
        assert freed() is None
    finally:
        gc.enable()
