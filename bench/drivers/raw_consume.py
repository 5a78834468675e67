"""Reads partitions from the beginning with a driver that looks at batch headers only, one connection a partition.

A client library spends several times what the broker does on every message, so with it what is measured is the
client. Here one thread a partition asks for the next megabytes as soon as the last have come.
"""

from __future__ import annotations

import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

from bench.driver import Figures, drive
from bench.frames import fetch_request, records_position

RECEIVE_BYTES = 4 << 20
STALL_S = 30
BATCH_HEAD = struct.Struct(">qi")
LAST_OFFSET_DELTA = struct.Struct(">i")


def raw_consume(bootstrap: str, topic: str, partitions: int, count: int) -> Figures:
    """`count` messages over all partitions; the ends of the partitions are where a fetch brings nothing."""
    began = time.perf_counter()
    with ThreadPoolExecutor(partitions) as pool:
        found = list(pool.map(lambda partition: _read(bootstrap, topic, partition), range(partitions)))
    seconds = time.perf_counter() - began
    messages, size = (sum(column) for column in zip(*found, strict=True))
    if messages < count:
        raise RuntimeError(f"{messages} of {count} messages were there")
    return {"seconds": seconds, "messages": messages, "bytes": size}


def _read(bootstrap: str, topic: str, partition: int) -> tuple[int, int]:
    """Messages and record bytes of one partition."""
    host, port = bootstrap.split(":")
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    offset = size = 0
    with socket.create_connection((host, int(port)), timeout=STALL_S) as connection:
        while True:
            connection.sendall(fetch_request(1, topic, partition, offset, max_wait_ms=0))
            body = _receive(connection, buffer)
            records = body[records_position(body) :]
            if not records:
                return offset, size
            offset = _next_offset(records)
            size += len(records)


def _receive(connection: socket.socket, buffer: memoryview) -> memoryview:
    head = connection.recv(4, socket.MSG_WAITALL)
    (length,) = struct.unpack(">i", head)
    body = buffer[:length]
    received = 0
    while received < length:
        received += connection.recv_into(body[received:])
    return body


def _next_offset(records: memoryview) -> int:
    """After the last whole batch."""
    position = next_offset = 0
    while position + 61 <= len(records):
        base_offset, length = BATCH_HEAD.unpack_from(records, position)
        if position + 12 + length > len(records):
            break
        (delta,) = LAST_OFFSET_DELTA.unpack_from(records, position + 23)
        next_offset = base_offset + delta + 1
        position += 12 + length
    return next_offset


if __name__ == "__main__":
    drive(raw_consume)
