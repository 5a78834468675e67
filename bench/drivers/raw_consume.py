"""Reads partitions from the beginning with a driver that only parses batch headers, one connection per
partition.

A client library spends several times more CPU per message than the broker, so its benchmark measures the
client. Here one thread per partition requests the next megabytes as soon as the last have arrived.
"""

from __future__ import annotations

import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

from bench.driver import Figures, drive
from bench.frames import fetch_request, read_fetch, records_position

RECEIVE_BYTES = 4 << 20
STALL_S = 30
MAX_WAIT_MS = 500
BATCH_HEAD = struct.Struct(">qi")
LAST_OFFSET_DELTA = struct.Struct(">i")
LAST_OFFSET_DELTA_AT = 23
BATCH_HEADER_BYTES = 61


def raw_consume(bootstrap: str, topic: str, partitions: int, count: int) -> Figures:
    """Read all messages of all partitions up to their high watermarks, at least `count`."""
    readers = [Reader(bootstrap, topic, partition) for partition in range(partitions)]
    for reader in readers:
        reader.wait_for_leader()
    began = time.perf_counter()
    with ThreadPoolExecutor(partitions) as pool:
        list(pool.map(Reader.read, readers))
    seconds = time.perf_counter() - began
    messages = sum(reader.offset for reader in readers)
    if messages < count:
        raise RuntimeError(f"{messages} of {count} messages were there")
    return {"seconds": seconds, "messages": messages, "bytes": sum(reader.size for reader in readers)}


class Reader:
    """One partition on its own connection; `size` counts whole batches only."""

    def __init__(self, bootstrap: str, topic: str, partition: int) -> None:
        host, port = bootstrap.split(":")
        self.offset = 0
        self.size = 0
        self._place = (topic, partition)
        self._connection = socket.create_connection((host, int(port)), timeout=STALL_S)
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))

    def wait_for_leader(self) -> None:
        """Wait until the partition has a leader: a broker that has just started may respond earlier."""
        deadline = time.monotonic() + STALL_S
        while read_fetch(self._fetch()).error_code:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self._place} has no leader")
            time.sleep(0.05)

    def read(self) -> None:
        while True:
            body = self._fetch()
            answer = read_fetch(body)
            if answer.error_code:
                raise RuntimeError(f"fetch was answered with error {answer.error_code}")
            self._take(body[records_position(body) :])
            if self.offset >= answer.high_watermark:
                return

    def _fetch(self) -> memoryview:
        self._connection.sendall(fetch_request(1, *self._place, self.offset, MAX_WAIT_MS))
        return _receive(self._connection, self._buffer)

    def _take(self, records: memoryview) -> None:
        position = 0
        while position + BATCH_HEADER_BYTES <= len(records):
            base_offset, length = BATCH_HEAD.unpack_from(records, position)
            if position + BATCH_HEAD.size + length > len(records):
                break
            (delta,) = LAST_OFFSET_DELTA.unpack_from(records, position + LAST_OFFSET_DELTA_AT)
            self.offset = base_offset + delta + 1
            position += BATCH_HEAD.size + length
        self.size += position


def _receive(connection: socket.socket, buffer: memoryview) -> memoryview:
    head = connection.recv(4, socket.MSG_WAITALL)
    (length,) = struct.unpack(">i", head)
    body = buffer[:length]
    received = 0
    while received < length:
        received += connection.recv_into(body[received:])
    return body


if __name__ == "__main__":
    drive(raw_consume)
