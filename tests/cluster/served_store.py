"""Store of one machine behind its Unix socket, for tests of the clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from node import quiet_log

from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.socket_store import SocketStore
from penstock.cluster.store_server import StoreServer
from penstock.net.unix_network import UnixNetwork
from penstock.threads import ThreadPools

SESSION_TIMEOUT_S = 30.0


@asynccontextmanager
async def served_store(directory: Path) -> AsyncIterator[Callable[[], SocketStore]]:
    """Serve a store in a directory; yields a function that makes a client, not started yet."""
    threads, network = ThreadPools(), UnixNetwork()
    store = EmbeddedStore(str(directory / "metadata.sqlite"), threads)
    await store.start()
    server = StoreServer(store, network, quiet_log())
    path = str(directory / "store")
    await server.start(path)
    try:
        yield lambda: SocketStore(network, path, SESSION_TIMEOUT_S)
    finally:
        await server.close()
        await store.close()
        threads.close()
