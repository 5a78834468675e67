"""A closed connection is freed at once, without the garbage collector."""

from __future__ import annotations

import gc
import weakref

from test_connection import Server

from penstock.net.response import PendingResponse


def test_closed_connection_leaves_no_reference_cycle() -> None:
    server, later = Server(), PendingResponse()
    later.when_abandoned(lambda: None)
    server.answers[b"wait"] = later
    server.receive(b"hello", b"wait")
    connection = weakref.ref(server.connection)
    gc.collect()
    gc.disable()
    try:
        server.connection.close()
        server.answers.clear()
        del server.connection, later
        assert connection() is None
    finally:
        gc.enable()
