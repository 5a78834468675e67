"""Acceptance of connections: a few in each turn of the loop, and none with the last file descriptors."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice, pairwise
from pathlib import Path
from unittest.mock import patch

import pytest

from penstock.net.network import Listener, Socket, TcpNetwork
from penstock.net.unix_network import UnixNetwork
from support.eventually import eventually_async

CONNECTIONS = 100
MAX_IN_A_TURN = 8


def test_few_connections_are_accepted_in_a_turn_of_the_loop() -> None:
    async def scenario() -> None:
        accepted: list[Socket] = []
        turns: list[int] = []

        def accept(connected: Socket) -> bool:
            accepted.append(connected)
            return True

        def count() -> None:
            turns.append(len(accepted))
            if len(accepted) < CONNECTIONS:
                loop.call_soon(count)

        loop = asyncio.get_running_loop()
        listener = await TcpNetwork().listen("127.0.0.1", 0, accept)
        with ExitStack() as clients:
            # The loop does not run meanwhile, so all of them wait for it.
            for _ in range(CONNECTIONS):
                clients.enter_context(socket.create_connection(("127.0.0.1", listener.port)))
            loop.call_soon(count)
            await eventually_async(lambda: len(accepted) == CONNECTIONS)
        listener.close()
        for each in accepted:
            each.close()
        assert max(after - before for before, after in pairwise(turns)) <= MAX_IN_A_TURN

    asyncio.run(scenario())


@contextmanager
def few_descriptors(free: int) -> Iterator[None]:
    """Limit this process to `free` file descriptors more than are open."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    unused = (number for number in range(limits[0]) if not is_open(number))
    resource.setrlimit(resource.RLIMIT_NOFILE, (next(islice(unused, free, None)), limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


async def turns_of_the_loop(seconds: float) -> int:
    """Number of turns in which the loop was woken by something else than this timer."""
    loop = asyncio.get_running_loop()
    selector = loop._selector  # type: ignore[attr-defined]
    with patch.object(selector, "select", wraps=selector.select) as select:
        await asyncio.sleep(seconds)
        return len([call for call in select.call_args_list if call.args[0] != 0])


@pytest.mark.parametrize(("network", "free"), [("tcp", 10), ("tcp", 0), ("unix", 0)])
def test_connections_wait_while_descriptors_are_missing(network: str, free: int, tmp_path: Path) -> None:
    async def scenario() -> None:
        accepted: list[Socket] = []

        def accept(connected: Socket) -> bool:
            accepted.append(connected)
            return True

        path = str(tmp_path / "socket")
        with ExitStack() as clients:
            if network == "tcp":
                listener: Listener = await TcpNetwork().listen("127.0.0.1", 0, accept)
                for _ in range(30):
                    clients.enter_context(socket.create_connection(("127.0.0.1", listener.port)))
            else:
                listener = await UnixNetwork().listen(path, 0, accept)
                for _ in range(30):
                    clients.enter_context(socket.socket(socket.AF_UNIX)).connect(path)
            with few_descriptors(free):
                assert await turns_of_the_loop(0.5) < 25, "the loop spins"
                assert accepted == []
                for _ in range(free):
                    clients.enter_context(open(os.devnull))
            await eventually_async(lambda: len(accepted) == 30)
        listener.close()
        for each in accepted:
            each.close()

    asyncio.run(scenario())
