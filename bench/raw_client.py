"""A minimal Kafka connection: pipelined Produce and Fetch frames, thousands per process."""

from __future__ import annotations

import asyncio
import gc
import resource
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from bench.frames import (
    FetchAnswer,
    ProduceAnswer,
    fetch_request,
    produce_request,
    read_fetch,
    read_produce,
)

CONNECTING_AT_ONCE = 100
PATIENCE_S = 30


class RawConnection(asyncio.Protocol):
    """Kafka connection. Responses come in request order, so pending requests are a queue."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0

    async def produce(self, topic: str, partition: int, batch: bytes) -> ProduceAnswer:
        return read_produce(await self.ask(produce_request(self.next_id(), topic, partition, batch)))

    async def fetch(self, topic: str, partition: int, offset: int, max_wait_ms: int) -> FetchAnswer:
        return read_fetch(
            await self.ask(fetch_request(self.next_id(), topic, partition, offset, max_wait_ms))
        )

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            (length,) = struct.unpack_from(">i", self._received)
            if len(self._received) < 4 + length:
                return
            body = bytes(self._received[4 : 4 + length])
            del self._received[: 4 + length]
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_result(body)

    def connection_lost(self, error: Exception | None) -> None:
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(error or ConnectionResetError("the broker closed the connection"))
        self._waiting.clear()

    def next_id(self) -> int:
        self._correlation_id += 1
        return self._correlation_id

    def ask(self, request: bytes) -> asyncio.Future[bytes]:
        assert self._transport is not None, "not connected"
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._transport.write(request)
        return answer


C = TypeVar("C", bound="RawConnection")


async def connect_many(bootstrap: str, count: int) -> Sequence[RawConnection]:
    return await connect_many_as(bootstrap, count, RawConnection)


async def connect_many_as(bootstrap: str, count: int, make: Callable[[], C]) -> Sequence[C]:
    """Open connections, a hundred at a time so that no listen queue overflows."""
    host, port = bootstrap.split(":")
    loop = asyncio.get_running_loop()
    allowed = asyncio.Semaphore(CONNECTING_AT_ONCE)

    async def connect() -> C:
        async with allowed:
            _, connection = await loop.create_connection(make, host, int(port))
            return connection

    return await asyncio.gather(*(connect() for _ in range(count)))


async def wait_for_leaders(bootstrap: str, topic: str, partitions: int, batch: bytes) -> None:
    """Wait for leaders: a broker that has just started, or has just created a topic, may respond too early."""
    (connection,) = await connect_many(bootstrap, 1)
    deadline = time.monotonic() + PATIENCE_S
    for partition in range(partitions):
        while (await connection.produce(topic, partition, batch)).error_code:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{topic}-{partition} has no leader")
            await asyncio.sleep(0.05)
    connection.close()


def prepare_process() -> None:
    """Raise the limit of open files, and disable the driver's garbage collector during measurements."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.disable()
