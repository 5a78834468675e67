"""A connection that sends from cold pages to a simulated socket that is full."""

from __future__ import annotations

import asyncio
import random

from penstock.net.connection import Connection, ConnectionLimits, Traffic
from penstock.net.network import Socket
from penstock.net.request_memory import RequestMemory
from penstock.net.response import Answer
from penstock.records.log_slice import LogSlice
from simulation.machine.clock import SimulatedClock
from simulation.machine.disk import SimulatedDisk
from simulation.machine.loop import new_loop
from simulation.machine.network import SimulatedNetwork
from simulation.machine.threads import SimulatedThreads
from simulation.machine.trace import Trace


def test_waiting_for_the_disk_does_not_spin_on_a_writable_socket() -> None:
    loop = new_loop(callbacks_per_instant=1000)
    trace = Trace(loop.time)
    network = SimulatedNetwork(loop, random.Random(3), trace)
    disk = SimulatedDisk(random.Random(1), trace)
    disk.faults.cold_reads = 1.0
    content = random.Random(2).randbytes(50_000)
    file = disk.open("log", create=True)
    file.pwrite(0, [content])
    slices: list[LogSlice | bytes] = [
        b"head",
        *(LogSlice(file, start, 5_000) for start in range(0, 50_000, 5_000)),
    ]

    async def main() -> bytes:
        threads = SimulatedThreads(loop, random.Random(1), trace)
        traffic = Traffic(RequestMemory(1 << 20), SimulatedClock(loop.time))

        def handle(frame: memoryview) -> Answer:
            return list(slices)

        def accept(socket: Socket) -> bool:
            limits = ConnectionLimits(1 << 20, 10, 1 << 20)
            Connection(socket, handle, lambda *_: None, limits=limits, threads=threads, traffic=traffic)
            return True

        listener = await network.host("broker").listen("", 0, accept)
        socket = await network.host("client").connect("broker", listener.port)
        socket.sendmsg([(4).to_bytes(4, "big") + b"ping"], more=False)
        received = bytearray()
        while len(received) < 50_004:
            await asyncio.sleep(0.01)  # slower than the broker sends, so that the window fills up
            buffer = bytearray(1_000)
            try:
                received += buffer[: socket.recv_into(memoryview(buffer))]
            except BlockingIOError:
                continue
        return bytes(received)

    received = loop.run_until_complete(main())
    loop.close()
    assert received == b"head" + content
