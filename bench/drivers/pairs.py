"""Many producers and as many consumers, each on its own connection, at a total rate that does not grow with
their number.

Pair i writes to and long-polls partition i. A round is a produce request, its acknowledgement, and the
arrival of the record at the pair's consumer. Rounds start at fixed times, independent of the broker, so that
waiting is measured.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

import uvloop

from bench.driver import Figures, drive
from bench.frames import one_record_batch
from bench.measure import percentile
from bench.raw_client import RawConnection, connect_many, prepare_process

PATIENCE_S = 30


class Pair:
    """A producer and a consumer of one partition; the consumer always has a fetch waiting."""

    def __init__(self, topic: str, partition: int, producer: RawConnection, consumer: RawConnection) -> None:
        self._topic = topic
        self._partition = partition
        self._producer = producer
        self._consumer = consumer
        self._offset = 0
        self._random = random.Random(partition)
        self._arrived: asyncio.Future[float] | None = None
        self.busy = False

    async def round(self, batch: bytes) -> tuple[float, float]:
        """Milliseconds until the acknowledgement and until the arrival."""
        self.busy = True
        self._arrived = asyncio.get_running_loop().create_future()
        began = time.perf_counter()
        answer = await asyncio.wait_for(
            self._producer.produce(self._topic, self._partition, batch), PATIENCE_S
        )
        acknowledged = time.perf_counter()
        if answer.error_code:
            raise RuntimeError(f"produce was answered with error {answer.error_code}")
        arrived = await asyncio.wait_for(self._arrived, PATIENCE_S)
        self.busy = False
        return (acknowledged - began) * 1_000, (arrived - began) * 1_000

    async def consume(self, max_wait_ms: int) -> None:
        # Different wait times, so that thousands of idle polls do not end at the same moment.
        await asyncio.sleep(self._random.random() * max_wait_ms / 1_000)
        while True:
            wait_ms = int(max_wait_ms * self._random.uniform(0.5, 1.5))
            answer = await self._consumer.fetch(self._topic, self._partition, self._offset, wait_ms)
            if answer.error_code:
                raise RuntimeError(f"fetch was answered with error {answer.error_code}")
            if answer.record_bytes:
                self._offset = answer.high_watermark
                if self._arrived is not None and not self._arrived.done():
                    self._arrived.set_result(time.perf_counter())


async def drive_pairs(
    bootstrap: str, topic: str, pairs: int, rounds_per_s: float, seconds: float, max_wait_ms: int
) -> Figures:
    producers = await connect_many(bootstrap, pairs)
    consumers = await connect_many(bootstrap, pairs)
    made = [Pair(topic, i, producers[i], consumers[i]) for i in range(pairs)]
    waiting = [asyncio.create_task(pair.consume(max_wait_ms)) for pair in made]
    await asyncio.sleep(max_wait_ms / 1_000)
    measured = await _rounds(made, rounds_per_s, seconds)
    for task in waiting:
        if task.done():
            task.result()
        task.cancel()
    for connection in (*producers, *consumers):
        connection.close()
    acknowledged, arrived = zip(*measured, strict=True)
    return {
        "ack_p50_ms": percentile(acknowledged, 0.5),
        "ack_p99_ms": percentile(acknowledged, 0.99),
        "round_p50_ms": percentile(arrived, 0.5),
        "round_p99_ms": percentile(arrived, 0.99),
        "rounds": len(measured),
    }


async def _rounds(pairs: Sequence[Pair], rounds_per_s: float, seconds: float) -> list[tuple[float, float]]:
    """Start rounds at fixed times on random pairs, at most one round per pair at a time."""
    source = random.Random(1)
    batch = one_record_batch(source.randbytes(1_024), int(time.time() * 1_000))
    running: list[asyncio.Task[tuple[float, float]]] = []
    began = time.perf_counter()
    for number in range(int(rounds_per_s * seconds)):
        await asyncio.sleep(max(0.0, began + number / rounds_per_s - time.perf_counter()))
        free = [pair for pair in source.sample(pairs, min(20, len(pairs))) if not pair.busy]
        if free:
            running.append(asyncio.create_task(free[0].round(batch)))
    return await asyncio.gather(*running)


def pairs(**parameters: float) -> Figures:
    prepare_process()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(drive_pairs(**parameters))  # type: ignore[arg-type]


if __name__ == "__main__":
    drive(pairs)
