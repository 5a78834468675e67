"""Writers on raw connections that wait for every acknowledgement, all at the same time."""

from __future__ import annotations

import asyncio
import random
import time

import uvloop

from bench.driver import Figures, drive
from bench.frames import one_record_batch
from bench.measure import percentile
from bench.raw_client import RawConnection, connect_many, prepare_process


async def drive_writers(
    bootstrap: str, topic: str, partitions: int, writers: int, seconds: float, messages_per_s: float = 0
) -> Figures:
    """Write at `messages_per_s` for all writers together; 0 means that each writer sends the next message at
    once.
    """
    connections = await connect_many(bootstrap, writers)
    batch = one_record_batch(random.Random(1).randbytes(1_024), int(time.time() * 1_000))
    pause_s = writers / messages_per_s if messages_per_s else 0.0
    for partition in range(partitions):
        await _send(connections[partition % writers], topic, partition, batch)
    began = time.perf_counter()
    work = [
        _write(connection, topic, number % partitions, batch, began + seconds, pause_s)
        for number, connection in enumerate(connections)
    ]
    times = [each for writer in await asyncio.gather(*work) for each in writer]
    elapsed = time.perf_counter() - began
    for connection in connections:
        connection.close()
    return {
        "p50_ms": percentile(times, 0.5),
        "p99_ms": percentile(times, 0.99),
        "messages_per_s": len(times) / elapsed,
        "messages": len(times),
    }


async def _write(
    connection: RawConnection, topic: str, partition: int, batch: bytes, until: float, pause_s: float
) -> list[float]:
    times = []
    source = random.Random(partition)
    while (began := time.perf_counter()) < until:
        await _send(connection, topic, partition, batch)
        times.append((time.perf_counter() - began) * 1_000)
        if pause_s:
            await asyncio.sleep(pause_s * source.uniform(0.5, 1.5))
    return times


async def _send(connection: RawConnection, topic: str, partition: int, batch: bytes) -> None:
    answer = await asyncio.wait_for(connection.produce(topic, partition, batch), 30)
    if answer.error_code:
        raise RuntimeError(f"produce was answered with error {answer.error_code}")


def writers(**parameters: float) -> Figures:
    prepare_process()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(drive_writers(**parameters))  # type: ignore[arg-type]


if __name__ == "__main__":
    drive(writers)
