"""The records of single keys, asked for over TCP from whole brokers: found, waited for, in order, each once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from harness import Harness
from whole_brokers import Brokers, run, until

from penstock.config import Address
from penstock.errors import BrokerError, ErrorCode
from penstock.net.keyed_reads import KeyedRead, KeyedReads
from penstock.net.network import TcpNetwork
from penstock.net.routes import Routes
from penstock.net.sender import Sender
from penstock.records.building import NewRecord
from penstock.records.iteration import iterate, read_batches
from penstock.server.security import Operation, ResourceType
from penstock.storage.key_entries import IDEMPOTENCY_HEADER
from penstock.wire.fetch_by_key import KeyResult

MAIL = "mail"
NOW_MS = 1_700_000_000_000


class Mailboxes:
    """A client of a cluster with one indexed topic."""

    def __init__(self, brokers: Brokers) -> None:
        addresses = [Address("localhost", broker.port) for broker in brokers.running.values()]
        network = TcpNetwork()
        self.routes = Routes(network, addresses, "test")
        self.sender = Sender(self.routes)
        self.reads = KeyedReads(network, self.routes, "test")

    async def close(self) -> None:
        await self.sender.close()
        self.reads.close()
        self.routes.close()

    def send(self, key: str, value: str, own_key: str | None = None) -> asyncio.Future[int]:
        headers = () if own_key is None else ((IDEMPOTENCY_HEADER, own_key.encode()),)
        record = NewRecord(key.encode(), value.encode(), NOW_MS, headers)
        return self.sender.send(MAIL, 0, record, is_alone=own_key is not None)

    async def read(self, key: str, from_offset: int = 0, **options: int) -> KeyResult:
        wanted = KeyedRead(MAIL, 0, key.encode(), from_offset, **options)
        return await self.reads.read(wanted, seconds=20)

    async def values(self, key: str, from_offset: int = 0, **options: int) -> list[str]:
        return values_of(await self.read(key, from_offset, **options))


def values_of(result: KeyResult) -> list[str]:
    return [
        (record.value or b"").decode()
        for header, batch in read_batches(memoryview(result.records))
        for record in iterate(batch, header)
    ]


async def indexed(broker: Harness, **configs: str) -> None:
    await broker.create(MAIL, 1, index_by_key="true", **configs)


def test_a_key_gets_its_records_in_order_and_no_others(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        await indexed(await brokers.start(1))
        mail = Mailboxes(brokers)
        await asyncio.gather(*(mail.send(f"user-{n % 7}", str(n)) for n in range(200)))
        assert await mail.values("user-3") == [str(n) for n in range(3, 200, 7)]
        first = await mail.read("user-3", max_records=10)
        assert (values_of(first), first.is_complete) == ([str(n) for n in range(3, 73, 7)], False)
        assert (await mail.values("user-3", first.next_offset))[0] == "73"
        nobody = await mail.read("user-9")
        assert (nobody.records, nobody.is_complete, nobody.next_offset) == (b"", True, 200)
        await mail.close()

    run(tmp_path, scenario)


def test_whoever_waits_is_woken_by_its_own_key_alone(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        await indexed(await brokers.start(1))
        mail = Mailboxes(brokers)
        await mail.send("other", "0")
        waiting = {n: asyncio.ensure_future(mail.values(f"user-{n}", max_wait_ms=20_000)) for n in range(50)}
        await asyncio.sleep(0)
        await mail.send("other", "1")
        assert await mail.values("other") == ["0", "1"]
        for n in (30, 7):
            await mail.send(f"user-{n}", f"hello {n}")
            assert await waiting.pop(n) == [f"hello {n}"]
        assert not any(task.done() for task in waiting.values())
        for task in waiting.values():
            task.cancel()
        await asyncio.gather(*waiting.values(), return_exceptions=True)
        session = next(iter(brokers.running.values()))
        replica = session._context.replicas.get(MAIL, 0)
        assert replica.keyed is not None
        await until(lambda: not replica.keyed._waiting)  # type: ignore[union-attr]
        await mail.close()

    run(tmp_path, scenario)


def test_a_wait_ends_with_its_time(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        await indexed(await brokers.start(1))
        mail = Mailboxes(brokers)
        result = await mail.read("nobody", max_wait_ms=50)
        assert (result.records, result.is_complete, result.next_offset) == (b"", True, 0)
        await mail.close()

    run(tmp_path, scenario)


def test_a_repeated_send_with_the_same_idempotency_key_is_stored_once(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        await indexed(await brokers.start(1))
        mail = Mailboxes(brokers)
        first = await mail.send("ann", "hello", "a")
        assert await mail.send("bob", "hello", "a") == 1, "keys are those of a user"
        together = await asyncio.gather(*(mail.send("ann", "again", "b") for _ in range(5)))
        assert set(together) == {2}
        await mail.send("ann", "without")
        assert await mail.send("ann", "hello", "a") == first
        await brokers.stop(1)
        await brokers.start(1)
        await mail.close()
        mail = Mailboxes(brokers)
        assert await mail.send("ann", "hello", "a") == first, "after a restart"
        assert await mail.values("ann") == ["hello", "again", "without"]
        await mail.close()

    run(tmp_path, scenario)


def test_only_indexed_topics_are_looked_up_by_key_and_only_by_those_who_may_read(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        broker = await brokers.start(1)
        await broker.create(MAIL)
        mail = Mailboxes(brokers)
        with pytest.raises(BrokerError) as refused:
            await mail.read("ann")
        assert refused.value.code is ErrorCode.invalid_request
        broker.deny((Operation.READ, ResourceType.TOPIC, MAIL))
        with pytest.raises(BrokerError) as refused:
            await mail.read("ann")
        assert refused.value.code is ErrorCode.topic_authorization_failed
        await mail.close()

    run(tmp_path, scenario)
