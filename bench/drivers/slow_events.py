"""HTTP clients that request events and read them very slowly, until the process ends."""

from __future__ import annotations

import asyncio
import socket

from bench.driver import Figures, drive
from bench.http_client import http_request
from bench.raw_client import prepare_process

RECEIVE_BUFFER_BYTES = 16 * 1024
SIP_BYTES = 1_024


async def _sip(port: int, topic: str, interval_s: float, stop: asyncio.Event) -> int:
    loop = asyncio.get_running_loop()
    with socket.socket() as narrow:
        # A small receive buffer: with a large one the kernel would read in the client's place.
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        narrow.setblocking(False)
        await loop.sock_connect(narrow, ("127.0.0.1", port))
        await loop.sock_sendall(narrow, http_request("GET", f"/v1/topics/{topic}/events?from=earliest"))
        taken = 0
        while not stop.is_set():
            data = await loop.sock_recv(narrow, SIP_BYTES)
            if not data:
                raise ConnectionResetError("the gateway has closed the connection")
            taken += len(data)
            await asyncio.sleep(interval_s)
        return taken


async def drive_slow(port: int, topic: str, clients: int, seconds: float, interval_s: float) -> Figures:
    stop = asyncio.Event()
    sipping = [asyncio.create_task(_sip(port, topic, interval_s, stop)) for _ in range(clients)]
    await asyncio.sleep(seconds)
    stop.set()
    return {"bytes": sum(await asyncio.gather(*sipping))}


def slow_events(**parameters: float) -> Figures:
    prepare_process()
    return asyncio.run(drive_slow(**parameters))  # type: ignore[arg-type]


if __name__ == "__main__":
    drive(slow_events)
