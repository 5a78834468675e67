"""Lookups of single keys over TCP at whole brokers: found, waited for, in order, each once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import patch

import pytest

from penstock.config import Address
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.keyed_reads import KeyedRead, KeyedReads
from penstock.internal_client.producer import IdempotentProducer
from penstock.internal_client.routes import Routes
from penstock.net.network import TcpNetwork
from penstock.net.response import PendingResponse
from penstock.records.building import NewRecord
from penstock.records.iteration import iterate, read_batches
from penstock.server import key_session
from penstock.server.key_session import KeySession
from penstock.server.security import Operation, ResourceType
from penstock.storage.keys.entries import IDEMPOTENCY_HEADER
from penstock.wire.fetch_by_key import KeyResult
from support.eventually import eventually_async
from support.harness import Harness
from support.whole_brokers import Brokers, run

MAIL = "mail"
NOW_MS = 1_700_000_000_000


class Mailboxes:
    """Client of a cluster with one indexed topic."""

    def __init__(self, brokers: Brokers) -> None:
        addresses = [Address("localhost", broker.port) for broker in brokers.running.values()]
        network = TcpNetwork()
        self.routes = Routes(network, addresses, "test")
        self.sender = IdempotentProducer(self.routes)
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


def test_lookup_returns_records_of_its_key_in_order(tmp_path: Path) -> None:
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


def test_waiting_lookup_is_woken_by_its_own_key_alone(tmp_path: Path) -> None:
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
        await eventually_async(lambda: not _waits(brokers, 1))
        await mail.close()

    run(tmp_path, scenario)


def test_lookup_wait_ends_after_its_time(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        await indexed(await brokers.start(1))
        mail = Mailboxes(brokers)
        result = await mail.read("nobody", max_wait_ms=50)
        assert (result.records, result.is_complete, result.next_offset) == (b"", True, 0)
        await mail.close()

    run(tmp_path, scenario)


@pytest.mark.slow
def test_hung_broker_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.internal_client.keyed_reads._LATE_SECONDS", 1.0)
    monkeypatch.setattr("penstock.internal_client.keyed_reads._LOOK_SECONDS", 0.05)

    async def scenario(brokers: Brokers) -> None:
        await indexed(await brokers.start(1))
        mail = Mailboxes(brokers)
        assert await mail.values("nobody", max_wait_ms=300) == [], "who waits as told is not late"
        monkeypatch.setattr(KeySession, "answer", lambda session, correlation_id: PendingResponse())
        with pytest.raises(TimeoutError):
            await mail.reads.read(KeyedRead(MAIL, 0, b"nobody"), seconds=2)
        await mail.close()

    run(tmp_path, scenario)


def test_repeated_idempotency_key_is_stored_once(tmp_path: Path) -> None:
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


def test_lookup_needs_an_index_and_read_permission(tmp_path: Path) -> None:
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


@pytest.mark.slow
def test_index_covers_records_from_before_its_setting(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        broker = await brokers.start(1)
        await broker.create(MAIL, 1, segment_bytes="2000")
        mail = Mailboxes(brokers)
        for part in range(10):
            await asyncio.gather(
                *(mail.send(f"user-{n % 7}", str(n)) for n in range(part * 50, part * 50 + 50))
            )
        change = {"name": "index.by.key", "config_operation": 0, "value": "true"}
        resource = {"resource_type": 2, "resource_name": MAIL, "configs": [change]}
        await broker.ask(44, 1, {"resources": [resource], "validate_only": False})
        await eventually_async(lambda: broker.context.replicas.get(MAIL, 0).keyed is not None)
        assert len(broker.context.replicas.get(MAIL, 0).log.segments) > 3
        assert await mail.values("user-3") == [str(n) for n in range(3, 500, 7)]
        await mail.close()

    run(tmp_path, scenario)


def test_lookup_wait_continues_at_the_next_leader(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        first, second = await brokers.start(1), await brokers.start(2)
        await eventually_async(lambda: len(brokers.running[1]._metadata.image.brokers) == 2)
        await indexed(first)
        mail = Mailboxes(brokers)
        await mail.send("ann", "before", "a")
        await eventually_async(lambda: brokers.members(1, MAIL) == {1, 2})
        leader = 1 if first.context.replicas.get_in_sync(MAIL, 0).partition.is_leader else 2
        waiting = asyncio.ensure_future(mail.values("bob", max_wait_ms=20_000))
        await eventually_async(lambda: _waits(brokers, leader))
        await brokers.stop(leader)
        survivor = {1: second, 2: first}[leader]
        await eventually_async(lambda: survivor.context.replicas.get_in_sync(MAIL, 0).partition.is_leader)
        assert await mail.send("ann", "before", "a") == 0, "the next leader knows it too"
        await mail.send("bob", "after")
        assert await waiting == ["after"]
        assert await mail.values("ann") == ["before"]
        await mail.close()

    run(tmp_path, scenario, default_replication_factor="2")


def test_results_held_for_one_client_are_bounded(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        await indexed(await brokers.start(1))
        mail = Mailboxes(brokers)
        large = "x" * 300_000
        await asyncio.gather(*(mail.send(f"user-{n}", f"{n}{large}") for n in range(20)))
        held: list[int] = []
        add = KeySession._add

        def noted(self: KeySession, result: KeyResult) -> None:
            add(self, result)
            held.append(self._found_bytes)

        with patch.object(KeySession, "_add", noted), patch.object(key_session, "MAX_FOUND_BYTES", 1_000_000):
            found = await asyncio.gather(*(mail.values(f"user-{n}") for n in range(20)))
        assert found == [[f"{n}{large}"] for n in range(20)]
        assert max(held) < 1_000_000 + 2 * len(large)
        await mail.close()

    run(tmp_path, scenario)


def _waits(brokers: Brokers, number: int) -> bool:
    keyed = brokers.running[number]._context.replicas.get(MAIL, 0).keyed
    return keyed is not None and bool(keyed._waiting)
