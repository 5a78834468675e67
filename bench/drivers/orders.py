"""Share groups with an order: members of a group with order by key, and urgent records over a backlog."""

from __future__ import annotations

import asyncio
import time
from typing import Literal
from uuid import UUID

from confluent_kafka import Producer

from bench.driver import Figures, drive
from bench.drivers.shares import WAIT_MS, Members, configure, find_topic_id
from bench.frames import record_batch
from bench.measure import percentile
from bench.raw_client import RawConnection, connect_many, prepare_process
from bench.share_frames import heartbeat_request, read_heartbeat, read_share_fetch, share_fetch_request

PRIORITY = b"penstock-priority"


def orders(
    bootstrap: str,
    topic: str,
    group: str,
    partitions: int,
    consumers: int,
    count: int,
    size: int,
    how: Literal["write", "key", "none", "urgent"],
    keys: int = 1_000,
    records_at_a_time: int = 1,
) -> Figures:
    """`key` and `none` consume with this order; `urgent` measures records of level 9 over the backlog."""
    prepare_process()
    if how == "write":
        write(bootstrap, topic, count, size, keys)
        return {}
    settings = {"share.priority.enable": "true"} if how == "urgent" else {"share.order": how}
    configure(bootstrap, group, settings)
    topic_id = find_topic_id(bootstrap, topic)
    if how == "urgent":
        return asyncio.run(Urgent(group, topic, topic_id).run(bootstrap, count))
    members = Members(group, topic_id, partitions, count, records_at_a_time)
    return asyncio.run(members.run(bootstrap, topic, consumers))


def write(bootstrap: str, topic: str, count: int, size: int, keys: int) -> None:
    """Write records in batches; without `keys` they have no key."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 500_000}
    )
    value = bytes(size)
    for number in range(count):
        key = None if not keys else str(number * 7919 % keys)
        while True:
            try:
                producer.produce(topic, value, key=key)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(300):
        raise RuntimeError("the backlog was not written")


class Urgent:
    """One consumer that takes a record at a time, and one producer of urgent records, one at a time."""

    def __init__(self, group: str, topic: str, topic_id: UUID) -> None:
        self._group = group
        self._topic = topic
        self._topic_id = topic_id
        self._named: dict[int, list[tuple[int, int]]] = {0: []}
        self._epoch = 0

    async def run(self, bootstrap: str, count: int) -> Figures:
        consumer, producer = await connect_many(bootstrap, 2)
        deadline = time.monotonic() + 60
        while read_heartbeat(
            await consumer.ask(heartbeat_request(consumer.next_id(), self._group, "m", self._topic))
        ):
            if time.monotonic() > deadline:
                raise RuntimeError("the consumer cannot join")
            await asyncio.sleep(0.05)
        for _ in range(20):
            await self._take(consumer)
        batch = record_batch([b"urgent"], int(time.time() * 1000), [(PRIORITY, b"9")])
        waits, overtaken = [], 0
        for _ in range(count):
            began = time.perf_counter()
            sent = asyncio.ensure_future(producer.produce(self._topic, 0, batch))
            stored = await sent
            while (taken := await self._take(consumer)) != stored.base_offset:
                overtaken += taken is not None
            waits.append(time.perf_counter() - began)
        consumer.close()
        producer.close()
        return {
            "p50_ms": percentile(waits, 0.5) * 1000,
            "p99_ms": percentile(waits, 0.99) * 1000,
            "overtaken": overtaken,
        }

    async def _take(self, connection: RawConnection) -> int | None:
        """Take one record and accept the one before; returns its offset."""
        request = share_fetch_request(
            connection.next_id(), self._group, "m", self._epoch, self._topic_id, self._named, 1, WAIT_MS
        )
        answer = read_share_fetch(await connection.ask(request))
        if answer.error_code or answer.acknowledge_errors:
            raise RuntimeError(f"the consumer got {answer}")
        self._epoch += 1
        self._named = {}
        for partition, first, last in answer.acquired:
            self._named.setdefault(partition, []).append((first, last))
        return answer.acquired[0][1] if answer.acquired else None


if __name__ == "__main__":
    drive(orders)
