"""Many connections that wait for server-sent events of one topic: their cost, and the latency of one message."""

from __future__ import annotations

import asyncio
import time

import uvloop

from bench.driver import Figures, drive
from bench.http_client import connect_http, http_request
from bench.measure import cpu_seconds, percentile, rss_mb
from bench.raw_client import prepare_process

CONNECTING_AT_ONCE = 50
SETTLE_S = 3.0
IDLE_S = 25.0
"""Long enough for a keep-alive comment on each connection."""
PATIENCE_S = 60.0


class Listener(asyncio.Protocol):
    """A connection that waits for the start of the stream, and then for a message."""

    def __init__(self) -> None:
        self.began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.arrived: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        if not self.began.done() and b"retry: " in data:
            self.began.set_result(None)
        if not self.arrived.done() and b"data: " in data:
            self.arrived.set_result(time.perf_counter())

    def connection_lost(self, exc: Exception | None) -> None:
        for waiting in (self.began, self.arrived):
            if not waiting.done():
                waiting.set_exception(ConnectionResetError("the server has closed the connection"))


async def listen(port: int, topic: str) -> tuple[asyncio.Transport, Listener]:
    loop = asyncio.get_running_loop()
    transport, listener = await loop.create_connection(Listener, "127.0.0.1", port)
    transport.write(http_request("GET", f"/v1/topics/{topic}/events"))
    await asyncio.wait_for(listener.began, PATIENCE_S)
    return transport, listener


async def drive_listeners(port: int, topic: str, connections: int, pid: int) -> Figures:
    before_mb, began = rss_mb(pid), time.perf_counter()
    opened: list[tuple[asyncio.Transport, Listener]] = []
    while len(opened) < connections:
        together = min(CONNECTING_AT_ONCE, connections - len(opened))
        opened += await asyncio.gather(*(listen(port, topic) for _ in range(together)))
    connected_s = time.perf_counter() - began
    await asyncio.sleep(SETTLE_S)
    cpu_before = cpu_seconds(pid)
    await asyncio.sleep(IDLE_S)
    idle_cores = (cpu_seconds(pid) - cpu_before) / IDLE_S
    idle_mb = rss_mb(pid)
    [sender] = await connect_http(port, 1)
    body = b'{"messages":[{"value":"hello"}]}'
    headers = {"content-type": "application/json"}
    sent = time.perf_counter()
    answer = await sender.ask(http_request("POST", f"/v1/topics/{topic}/messages", body, headers))
    if answer.status != 200:
        raise RuntimeError(f"a message was answered with {answer}")
    arrived = [await asyncio.wait_for(listener.arrived, PATIENCE_S) for _, listener in opened]
    for transport, _ in opened:
        transport.abort()
    fan_out_ms = [(moment - sent) * 1_000 for moment in arrived]
    return {
        "before_mb": before_mb,
        "idle_mb": idle_mb,
        "idle_cores": idle_cores,
        "connected_s": connected_s,
        "fan_out_p50_ms": percentile(fan_out_ms, 0.5),
        "fan_out_max_ms": max(fan_out_ms),
    }


def idle_events(**parameters: int) -> Figures:
    prepare_process()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(drive_listeners(**parameters))  # type: ignore[arg-type]


if __name__ == "__main__":
    drive(idle_events)
