"""Clients that update keys without end or negotiate again: they are ended, and others are served."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from test_hostile_clients import negotiates

from support.certificates import TestAuthority
from support.secure_brokers import address_of, in_thread, named
from support.whole_brokers import Brokers, run

OPENSSL = shutil.which("openssl")
MAX_LINES = 100_000
MAX_GROWTH_BYTES = 16 << 20


def command_until_end(port: int, line: bytes, *options: str) -> int:
    """Send a command of `openssl s_client` again and again until its connection has ended. Returns the number sent.

    The client reads one line at a time from a terminal, and one command from each line.
    """
    assert OPENSSL is not None
    ours, theirs = os.openpty()
    command = [OPENSSL, "s_client", "-connect", f"127.0.0.1:{port}", *options]
    client = subprocess.Popen(command, stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(theirs)
    sent = 0

    def write() -> None:
        nonlocal sent
        with suppress(OSError):  # the client has ended
            while sent < MAX_LINES:
                os.write(ours, line)
                sent += 1

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        client.wait(timeout=60)
    finally:
        client.kill()
        client.wait()
        writer.join(10)
        os.close(ours)
    return sent


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")
@pytest.mark.parametrize(
    ("line", "version"), [(b"K\n", "-tls1_3"), (b"R\n", "-tls1_2")], ids=["key updates", "renegotiation"]
)
def test_client_that_changes_keys_without_end_is_closed(tmp_path: Path, line: bytes, version: str) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        await brokers.start(1)
        port, memory = address_of(brokers, 1, "SSL").port, psutil.Process().memory_info
        before = memory().rss
        assert await in_thread(partial(command_until_end, port, line, version)) < MAX_LINES
        assert memory().rss - before < MAX_GROWTH_BYTES
        assert await in_thread(partial(negotiates, port, version))

    run(tmp_path, scenario, listeners="SSL://127.0.0.1:0", **named(authority.settings()))
