"""The gateway's member of a consumer group, against whole brokers over TCP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from penstock.config import Address
from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.push.group_member import StreamMember
from penstock.internal_client.routes import CoordinatorKind, Routes
from penstock.net.broker_connection import BrokerConnection
from penstock.net.network import TcpNetwork
from support.eventually import eventually_async
from support.whole_brokers import Brokers, run

ORDERS, READERS = "orders", "readers"
QUICK = {
    "offsets_topic_num_partitions": "2",
    "group_consumer_heartbeat_interval_ms": "50",
    "group_consumer_session_timeout_ms": "10000",
}


async def connection_of(connection: BrokerConnection) -> BrokerConnection:
    return connection


class Reading:
    """A listener that commits given offsets when it gives up a partition."""

    def __init__(self) -> None:
        self.positions: dict[int, int] = {}
        self.given_up: list[frozenset[int]] = []
        self.losses = 0
        self.member: StreamMember | None = None

    async def start_offsets(self, partitions: frozenset[int]) -> Mapping[int, int]:
        return dict.fromkeys(partitions, 0)

    def on_assigned(self, positions: Mapping[int, int]) -> None:
        self.positions |= positions

    async def on_revoked(self, partitions: frozenset[int]) -> None:
        assert self.member is not None
        self.given_up.append(partitions)
        await self.member.commit({number: self.positions.pop(number) for number in partitions})

    def on_lost(self) -> None:
        self.losses += 1
        self.positions.clear()


def routes_to(brokers: Brokers) -> Routes:
    addresses = [Address("localhost", broker.port) for broker in brokers.running.values()]
    return Routes(TcpNetwork(), addresses, "test")


@asynccontextmanager
async def member(routes: Routes, member_id: str, group: str = READERS) -> AsyncIterator[Reading]:
    reading = Reading()
    reading.member = member = StreamMember(routes, group, await routes.topic(ORDERS), member_id, reading)
    await member.join()
    task = asyncio.create_task(member.run())
    try:
        yield reading
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await member.leave()


def test_members_share_partitions_and_take_over_at_committed_offset(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        await (await brokers.start(1)).create(ORDERS, partitions=4)
        routes = routes_to(brokers)
        async with member(routes, "first") as first:
            await eventually_async(lambda: len(first.positions) == 4)
            first.positions.update({0: 10, 1: 11, 2: 12, 3: 13})
            async with member(routes, "second") as second:
                await eventually_async(lambda: len(second.positions) == 2)
                assert set(first.positions).isdisjoint(second.positions)
                assert first.positions | second.positions == {0: 10, 1: 11, 2: 12, 3: 13}
                taken = frozenset(second.positions)
                second.positions = dict.fromkeys(taken, 20)
                assert second.member is not None
                await second.member.commit(second.positions)
            await eventually_async(lambda: len(first.positions) == 4)
            assert {first.positions[number] for number in taken} == {20}
            assert first.given_up == [taken]
        routes.close()

    run(tmp_path, scenario, **QUICK)


def test_fenced_member_rejoins_without_partitions(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        await (await brokers.start(1)).create(ORDERS)
        routes = routes_to(brokers)
        async with member(routes, "first") as reading:
            await eventually_async(lambda: reading.positions)
            await throw_out(routes, "first")
            await eventually_async(lambda: reading.losses == 1 and reading.positions)
            assert reading.given_up == []
        routes.close()

    run(tmp_path, scenario, **QUICK)


async def throw_out(routes: Routes, member_id: str) -> None:
    client = await routes.at_coordinator(CoordinatorKind.GROUP, READERS, connection_of)
    fields = {"group_id": READERS, "member_id": member_id, "member_epoch": -1, "topic_partitions": None}
    assert (await client.request(68, 1, fields)).error_code == 0


def test_commit_leaves_out_partitions_of_other_members(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        await (await brokers.start(1)).create(ORDERS, partitions=2)
        routes = routes_to(brokers)
        async with member(routes, "first") as first, member(routes, "second") as second:
            await eventually_async(lambda: len(first.positions) == len(second.positions) == 1)
            assert first.member is not None
            await first.member.commit({0: 5, 1: 5})
        async with member(routes, "third") as third:
            await eventually_async(lambda: len(third.positions) == 2)
            assert sorted(third.positions.values()) == [0, 5]
        routes.close()

    run(tmp_path, scenario, **QUICK)


def test_recreated_topic_has_no_committed_offsets(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        broker = await brokers.start(1)
        await broker.create(ORDERS)
        routes = routes_to(brokers)
        async with member(routes, "first") as reading:
            await eventually_async(lambda: reading.positions)
            reading.positions[0] = 7
            await broker.ask(20, 6, {"topics": [{"name": ORDERS, "topic_id": None}], "timeout": 5_000})
            await broker.create(ORDERS, partitions=2)
            await eventually_async(lambda: not reading.positions)
        routes.forget(ORDERS)
        async with member(routes, "second") as reading:
            await eventually_async(lambda: reading.positions == {0: 0, 1: 0})
        routes.close()

    run(tmp_path, scenario, **QUICK)


@pytest.mark.slow
def test_members_survive_change_of_coordinator(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harnesses = {number: await brokers.start(number) for number in (1, 2, 3)}
        await eventually_async(
            lambda: all(len(each._metadata.image.brokers) == 3 for each in brokers.running.values())
        )
        await harnesses[1].create(ORDERS, partitions=2)
        routes = routes_to(brokers)
        async with member(routes, "first") as reading:
            await eventually_async(lambda: len(reading.positions) == 2)
            reading.positions = {0: 3, 1: 4}
            assert reading.member is not None
            client = await routes.at_coordinator(CoordinatorKind.GROUP, READERS, connection_of)
            [coordinator] = [
                number
                for number in brokers.running
                if client is await routes.broker(number)  # type: ignore[arg-type]
            ]
            await brokers.stop(coordinator)
            await commit_in_the_end(reading.member, reading.positions)
            assert (reading.losses, reading.given_up) == (0, [])
        async with member(routes, "second") as second:
            await eventually_async(lambda: second.positions == {0: 3, 1: 4})
        routes.close()

    run(tmp_path, scenario, **QUICK)


async def commit_in_the_end(member: StreamMember, positions: Mapping[int, int]) -> None:
    async with asyncio.timeout(20):
        while True:
            with suppress(BrokerError, OSError):
                await member.commit(positions)
                return
            await asyncio.sleep(0.02)


def test_refused_join_raises_the_reason(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        await (await brokers.start(1)).create(ORDERS)
        routes = routes_to(brokers)
        with pytest.raises(BrokerError) as refusal:
            async with member(routes, "first", group=""):
                pass
        assert refusal.value.code is ErrorCode.invalid_request
        async with member(routes, "first"):
            with pytest.raises(BrokerError) as full:
                async with member(routes, "second"):
                    pass
            assert full.value.code is ErrorCode.group_max_size_reached
        routes.close()

    run(tmp_path, scenario, **QUICK, group_max_size="1")
