"""Produce requests at full speed, from a driver with a very small cost per request.

A client library spends about as much CPU on a request of one record as the broker, and more on a batch. Here the
frames are built in advance, and responses are only counted.
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
from functools import partial
from typing import cast

import uvloop

from bench.driver import Figures, drive
from bench.frames import produce_request, read_produce, record_batch
from bench.raw_client import wait_for_leaders

STALL_S = 60


class Pipeline(asyncio.Protocol):
    """Keeps `in_flight` requests in flight on one connection until `count` responses have arrived."""

    def __init__(self, request: bytes, count: int, in_flight: int) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._unsent = count - in_flight
        self._unanswered = count
        self._in_flight = in_flight
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def start(self) -> None:
        assert self._transport is not None
        self._transport.write(self._request * self._in_flight)

    def data_received(self, data: bytes) -> None:
        self._received += data
        answered = position = 0
        while len(self._received) - position >= 4:
            (length,) = struct.unpack_from(">i", self._received, position)
            if len(self._received) - position < 4 + length:
                break
            self._check(position + 4, length)
            position += 4 + length
            answered += 1
        del self._received[:position]
        self._advance(answered)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionResetError("the broker closed the connection"))

    def _check(self, position: int, length: int) -> None:
        answer = read_produce(bytes(self._received[position : position + length]))
        if answer.error_code and not self.done.done():
            self.done.set_exception(RuntimeError(f"produce was answered with error {answer.error_code}"))

    def _advance(self, answered: int) -> None:
        self._unanswered -= answered
        more = min(answered, self._unsent)
        self._unsent -= more
        if more and self._transport is not None:
            self._transport.write(self._request * more)
        if self._unanswered == 0 and not self.done.done():
            self.done.set_result(None)


async def drive_pipelines(
    bootstrap: str,
    topic: str,
    partitions: int,
    connections: int,
    count: int,
    size: int,
    in_flight: int,
    records: int = 1,
    delay_ms: int = -1,
) -> Figures:
    """Send `count` requests, each with a batch of `records` values of `size` bytes, delayed unless `delay_ms` is -1."""
    host, port = bootstrap.split(":")
    values = random.Random(1)
    headers = [(b"penstock-delay-ms", b"%d" % delay_ms)] if delay_ms >= 0 else []
    batch = record_batch([values.randbytes(size) for _ in range(records)], int(time.time() * 1_000), headers)
    await wait_for_leaders(bootstrap, topic, partitions, batch)
    pipelines = []
    for number in range(connections):
        request = produce_request(1, topic, number % partitions, batch)
        make = partial(Pipeline, request, count // connections, in_flight)
        _, pipeline = await asyncio.get_running_loop().create_connection(make, host, int(port))
        pipelines.append(pipeline)
    began = time.perf_counter()
    for pipeline in pipelines:
        pipeline.start()
    await asyncio.wait_for(asyncio.gather(*(pipeline.done for pipeline in pipelines)), STALL_S)
    sent = count // connections * connections * records
    return {"seconds": time.perf_counter() - began, "messages": sent, "bytes": sent * size}


def raw_produce(**parameters: float) -> Figures:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(drive_pipelines(**parameters))  # type: ignore[arg-type]


if __name__ == "__main__":
    drive(raw_produce)
