"""librdkafka's consumer while its coordinator moves to another broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.shard import GroupShard
from support.eventually import eventually
from support.whole_brokers import Brokers, run


def read_one(bootstrap: str) -> bytes:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("orders", b"value")
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    values: list[bytes] = []

    def poll() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            values.append(message.value())
        return bool(values)

    try:
        eventually(poll, "the consumer reads")
    finally:
        consumer.close()
    return values[0]


@pytest.mark.parametrize("code", [ErrorCode.not_coordinator, ErrorCode.coordinator_not_available])
def test_consumer_reads_after_its_coordinator_refused_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    refusals = [BrokerError(code, "planted")] * 2
    confirmed = GroupShard.confirmed

    def refuse(shard: GroupShard) -> asyncio.Future[None]:
        if refusals:
            raise refusals.pop()
        return confirmed(shard)

    async def scenario(brokers: Brokers) -> None:
        broker = await brokers.start(1)
        await broker.create("orders")
        monkeypatch.setattr(GroupShard, "confirmed", refuse)
        port = next(iter(broker.context.image.brokers.values())).port
        assert await asyncio.to_thread(read_one, f"127.0.0.1:{port}") == b"value"
        assert not refusals

    run(tmp_path, scenario)
