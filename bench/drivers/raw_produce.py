"""Produce requests at full speed, from a driver with a very small cost per request.

A client library spends about as much CPU on a request of one record as the broker, and more on a batch. Here the
frames are built in advance, and responses are only counted.
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections.abc import Callable
from functools import partial
from operator import mul
from typing import cast

import uvloop

from bench.driver import Figures, drive
from bench.frames import (
    init_producer_id_request,
    lz4_batch,
    produce_request,
    read_init_producer_id,
    read_produce,
    record_batch,
    set_sequence,
)
from bench.payload import compressible_values
from bench.raw_client import connect_many, wait_for_leaders

STALL_S = 60


class Pipeline(asyncio.Protocol):
    """Keeps `in_flight` requests in flight on one connection until `count` responses have arrived."""

    def __init__(self, next_requests: Callable[[int], bytes], count: int, in_flight: int) -> None:
        """`next_requests` returns the frames of the next requests."""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._next_requests = next_requests
        self._unsent = count - in_flight
        self._unanswered = count
        self._in_flight = in_flight
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def start(self) -> None:
        assert self._transport is not None
        self._transport.write(self._next_requests(self._in_flight))

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
            self._transport.write(self._next_requests(more))
        if self._unanswered == 0 and not self.done.done():
            self.done.set_result(None)


class SequencedRequests:
    """Requests of one idempotent producer to one partition: each batch has the next sequence."""

    def __init__(self, request: bytes, batch_bytes: int, producer_id: int, epoch: int, records: int) -> None:
        self._request = bytearray(request)
        self._batch = memoryview(self._request)[len(request) - batch_bytes :]
        self._producer = producer_id, epoch
        self._records = records
        self._sequence = 0

    def __call__(self, count: int) -> bytes:
        return b"".join(self._next() for _ in range(count))

    def _next(self) -> bytes:
        set_sequence(self._batch, *self._producer, self._sequence)
        self._sequence += self._records
        return bytes(self._request)


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
    kind: str = "plain",
) -> Figures:
    """Send `count` requests, each with a batch of `records` values of `size` bytes, delayed unless `delay_ms` is -1.
    The kind is `plain`, `lz4` (values that compress to about half) or `idempotent`.
    """
    host, port = bootstrap.split(":")
    batch = _make_batch(records, size, delay_ms, is_lz4=kind == "lz4")
    await wait_for_leaders(bootstrap, topic, partitions, batch)
    pipelines = []
    for number in range(connections):
        request = produce_request(1, topic, number % partitions, batch)
        requests: Callable[[int], bytes] = partial(mul, request)
        if kind == "idempotent":
            requests = SequencedRequests(request, len(batch), *await _producer_id(bootstrap), records)
        make = partial(Pipeline, requests, count // connections, in_flight)
        _, pipeline = await asyncio.get_running_loop().create_connection(make, host, int(port))
        pipelines.append(pipeline)
    began = time.perf_counter()
    for pipeline in pipelines:
        pipeline.start()
    await asyncio.wait_for(asyncio.gather(*(pipeline.done for pipeline in pipelines)), STALL_S)
    sent = count // connections * connections * records
    return {"seconds": time.perf_counter() - began, "messages": sent, "bytes": sent * size}


def _make_batch(records: int, size: int, delay_ms: int, *, is_lz4: bool) -> bytes:
    headers = [(b"penstock-delay-ms", b"%d" % delay_ms)] if delay_ms >= 0 else []
    source, known = random.Random(1), compressible_values(size)
    values = [known[n % len(known)] if is_lz4 else source.randbytes(size) for n in range(records)]
    batch = record_batch(values, int(time.time() * 1_000), headers)
    return lz4_batch(batch) if is_lz4 else batch


async def _producer_id(bootstrap: str) -> tuple[int, int]:
    """A new producer id, and its epoch."""
    (connection,) = await connect_many(bootstrap, 1)
    deadline = time.monotonic() + STALL_S
    while True:
        answer = await connection.ask(init_producer_id_request(connection.next_id()))
        error_code, producer_id, epoch = read_init_producer_id(answer)
        if not error_code:
            connection.close()
            return producer_id, epoch
        if time.monotonic() > deadline:
            raise RuntimeError(f"InitProducerId was answered with error {error_code}")
        await asyncio.sleep(0.1)


def raw_produce(**parameters: float) -> Figures:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(drive_pipelines(**parameters))  # type: ignore[arg-type]


if __name__ == "__main__":
    drive(raw_produce)
