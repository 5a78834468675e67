"""Reassignments between whole brokers, under load and with absent brokers, and requested elections."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from test_reassignment_handlers import codes, elect, elected, reassign
from test_replicas_on_brokers import started

from penstock.cluster.image import NO_LEADER, PartitionState
from penstock.errors import BrokerError, ErrorCode
from penstock.model import Offset
from penstock.records.batch import read_header
from penstock.records.building import NewRecord, build_batch
from penstock.records.iteration import iterate, read_batches
from penstock.storage.log import Log
from support.eventually import eventually_async
from support.harness import Harness, new_topic
from support.whole_brokers import Brokers, run

ORDERS = "orders"


async def create(harness: Harness, *replicas: list[int], **configs: str) -> None:
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    new = new_topic(ORDERS, assignments=list(enumerate(replicas)), configs=settings)
    response = await harness.ask(19, 7, {"topics": [new], "timeout": 5_000, "validate_only": False})
    assert response.topics[0].error_code == 0, response.topics[0].error_message


def state(harness: Harness, index: int = 0) -> PartitionState:
    return harness.context.image.topics[ORDERS].partitions[index]


def directories(data_dir: Path, number: int) -> list[str]:
    return sorted(path.name for path in (data_dir / str(number) / "logs").iterdir() if ORDERS in path.name)


def is_removed(data_dir: Path, number: int) -> bool:
    return directories(data_dir, number) == []


def ends_at(log: Log, offset: int) -> bool:
    return log.log_end_offset == offset


def values(harness: Harness) -> list[bytes]:
    """All committed records of the leader, in order."""
    replica = harness.context.replicas.get(ORDERS, 0)
    found: list[bytes] = []
    while len(found) < replica.log.high_watermark:
        part = replica.log.read(
            Offset(len(found)), 1 << 20, below=replica.log.high_watermark, at_least_one=True, wait=True
        ).read()
        for header, batch in read_batches(memoryview(part)):
            found += [record.value or b"" for record in iterate(batch, header)]
    return found


class Load:
    """Producer that appends to the current leader, one record at a time, and keeps the acknowledged ones."""

    def __init__(self, harnesses: dict[int, Harness]) -> None:
        self.harnesses = harnesses
        self.acknowledged: list[bytes] = []
        self._is_over = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while not self._is_over:
            value = b"%d" % len(self.acknowledged)
            for harness in tuple(self.harnesses.values()):
                if await self._is_acknowledged(harness, value):
                    self.acknowledged.append(value)
                    break
            await asyncio.sleep(0)

    async def _is_acknowledged(self, harness: Harness, value: bytes) -> bool:
        batch = memoryview(build_batch([NewRecord(None, value, 1_000)]))
        done: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
        try:
            replica = harness.context.replicas.get(ORDERS, 0)
            info = replica.append_as_leader(batch, read_header(batch), 1_000)
            if replica.when_committed(info, done.set_result):
                return True
        except BrokerError as error:
            done.set_result(error)
        refusal = await done
        assert refusal is None or refusal.code is ErrorCode.not_leader_or_follower
        return refusal is None

    async def more(self) -> None:
        """Wait until further records were acknowledged."""
        enough = len(self.acknowledged) + 20
        await eventually_async(lambda: len(self.acknowledged) >= enough or self._task.done())

    async def end(self) -> list[bytes]:
        self._is_over = True
        await self._task
        return self.acknowledged


async def moved(harness: Harness, replicas: list[int]) -> None:
    response = await reassign(harness, (ORDERS, 0, replicas))
    assert codes(response) == [ErrorCode.none]
    await eventually_async(
        lambda: state(harness).replicas == tuple(replicas) and not state(harness).is_reassigning
    )


def test_reassignment_under_load_loses_no_record(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harnesses = dict(enumerate(await started(brokers, 4), 1))
        first = harnesses[1]
        await create(first, [1, 2, 3], min_insync_replicas="2")
        await eventually_async(
            lambda: all(ORDERS in harness.context.image.topics for harness in harnesses.values())
        )
        load = Load(harnesses)
        await load.more()
        await moved(first, [2, 3, 4])
        assert state(first).leader == 2
        assert not state(first).is_reassigning
        await load.more()
        await eventually_async(lambda: directories(tmp_path, 1) == [])
        assert len(directories(tmp_path, 4)) == 1
        # The broker is back, and starts without a log.
        await moved(first, [1, 4])
        await load.more()
        await eventually_async(lambda: directories(tmp_path, 2) == directories(tmp_path, 3) == [])
        acknowledged = await load.end()
        leader = harnesses[state(first).leader]
        stored = values(leader)
        assert list(dict.fromkeys(stored)) == acknowledged
        for number in (1, 4):
            log = harnesses[number].context.logs.get(first.context.image.topics[ORDERS].id, 0)
            assert log is not None
            assert log.log_start_offset == 0
            await eventually_async(partial(ends_at, log, len(stored)))

    run(tmp_path, scenario)


def test_log_reassigned_while_its_broker_was_down_is_deleted_at_the_start(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harnesses = await started(brokers, 3)
        await create(harnesses[0], [1, 2], [1, 2])
        await harnesses[0].append(ORDERS, b"one")
        await brokers.stop(1)
        second = harnesses[1]
        await eventually_async(lambda: state(second).leader == 2)
        await moved(second, [2, 3])
        await second.append(ORDERS, b"two")
        assert len(directories(tmp_path, 1)) == 2
        first = await brokers.start(1)
        assert [name[: len("orders-1")] for name in directories(tmp_path, 1)] == ["orders-1"]
        await moved(first, [1, 2, 3])
        topic = first.context.image.topics[ORDERS]
        log = first.context.logs.get(topic.id, 0)
        assert log is not None
        assert (log.log_start_offset, log.log_end_offset) == (0, 2)

    run(tmp_path, scenario)


def test_log_of_an_unknown_topic_is_not_deleted(tmp_path: Path) -> None:
    """Empty metadata is no reason to delete a log."""

    async def scenario(brokers: Brokers) -> None:
        harnesses = await started(brokers, 2)
        await create(harnesses[0], [1, 2])
        await brokers.stop(1)
        await brokers.stop(2)
        emptied = Brokers(tmp_path)
        store = emptied.ensemble.client()
        await store.start()
        cluster = brokers.ensemble.tree.entries["/cluster"].data
        await emptied.start(3)
        node = await store.get("/cluster")
        await store.set("/cluster", cluster, node.version)
        await emptied.stop(3)
        await emptied.start(1)
        assert len(directories(tmp_path, 1)) == 1
        await emptied.stop(1)

    run(tmp_path, scenario)


def test_reassignment_waits_for_an_absent_broker_and_can_be_cancelled(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harnesses = await started(brokers, 3)
        first = harnesses[0]
        await create(first, [1, 2])
        await first.append(ORDERS, b"one")
        third = brokers.running[3]
        # The broker is registered, but does not fetch.
        third._replicas._fetchers.follow = lambda *_: None  # type: ignore[method-assign]
        response = await reassign(first, (ORDERS, 0, [3, 2]))
        assert codes(response) == [ErrorCode.none]
        listed = await first.ask(46, 0, {"timeout": 5_000, "topics": None})
        (partition,) = listed.topics[0].partitions
        assert set(partition.replicas) == {1, 2, 3}
        assert (partition.adding_replicas, partition.removing_replicas) == ((3,), (1,))
        await eventually_async(lambda: len(directories(tmp_path, 3)) == 1)
        assert state(first).isr == (1, 2)
        response = await reassign(first, (ORDERS, 0, None))
        assert codes(response) == [ErrorCode.none]
        assert state(first).replicas == (1, 2)
        assert not state(first).is_reassigning
        await eventually_async(lambda: directories(tmp_path, 3) == [])
        await first.append(ORDERS, b"two")
        assert values(first) == [b"one", b"two"]

    run(tmp_path, scenario)


def test_only_replica_is_reassigned_under_load(tmp_path: Path) -> None:
    """Each time the new replica leads first, and the old one leaves the set when all records are on the new
    one's disk.
    """

    async def scenario(brokers: Brokers) -> None:
        harnesses = dict(enumerate(await started(brokers, 2), 1))
        first = harnesses[1]
        await create(first, [1])
        await eventually_async(lambda: ORDERS in harnesses[2].context.image.topics)
        load = Load(harnesses)
        for number in (2, 1, 2):
            await load.more()
            await moved(first, [number])
            assert (state(first).leader, state(first).isr) == (number, (number,))
            await eventually_async(partial(is_removed, tmp_path, 3 - number))
        await load.more()
        acknowledged = await load.end()
        await eventually_async(lambda: harnesses[2].context.replicas.get(ORDERS, 0).partition.is_leader)
        assert list(dict.fromkeys(values(harnesses[2]))) == acknowledged

    run(tmp_path, scenario)


def test_group_coordinator_moves_with_its_partition(tmp_path: Path) -> None:
    async def commit(harness: Harness, offset: int) -> ErrorCode:
        partition = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": None,
        }
        topics = [{"name": ORDERS, "partitions": [partition]}]
        fields = {
            "group_id": "billing",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": topics,
        }
        answer = await harness.ask(8, 8, fields)
        code: ErrorCode = answer.topics[0].partitions[0].error_code
        return code

    async def committed(harness: Harness) -> tuple[ErrorCode, int]:
        fields = {"group_id": "billing", "topics": None, "require_stable": True}
        answer = await harness.ask(9, 7, fields)
        offsets = [partition.committed_offset for topic in answer.topics for partition in topic.partitions]
        return answer.error_code, offsets[0] if offsets else -1

    async def scenario(brokers: Brokers) -> None:
        harnesses = dict(enumerate(await started(brokers, 3), 1))
        await create(harnesses[1], [1])
        await eventually_async(lambda: ORDERS in harnesses[3].context.image.topics)
        asked = {"key_type": 0, "coordinator_keys": ["billing"]}
        found = (await harnesses[1].ask(10, 4, asked)).coordinators[0]
        while found.error_code:
            await asyncio.sleep(0.01)
            found = (await harnesses[1].ask(10, 4, asked)).coordinators[0]
        while await commit(harnesses[found.node_id], 41) is not ErrorCode.none:
            await asyncio.sleep(0.01)
        other = found.node_id % 3 + 1
        response = await reassign(harnesses[1], ("__consumer_offsets", 0, [other]))
        assert codes(response) == [ErrorCode.none]
        async with asyncio.timeout(20):
            while await committed(harnesses[other]) != (ErrorCode.none, 41):
                await asyncio.sleep(0.01)
            while await commit(harnesses[other], 42) is not ErrorCode.none:
                await asyncio.sleep(0.01)
        assert await commit(harnesses[found.node_id], 40) == ErrorCode.not_coordinator
        code, offset = await committed(harnesses[other])
        while (
            code is ErrorCode.coordinator_load_in_progress
        ):  # the last step of a reassignment has a leader epoch of its own
            await asyncio.sleep(0.01)
            code, offset = await committed(harnesses[other])
        assert (code, offset) == (ErrorCode.none, 42)

    run(tmp_path, scenario, offsets_topic_num_partitions="1")


def test_preferred_leader_election_makes_the_preferred_replica_leader(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harnesses = await started(brokers, 2)
        second = harnesses[1]
        await create(second, [1, 2])
        await second.context.replicas.settled()
        await brokers.stop(1)
        assert state(second).leader == 2
        refused = elected(await elect(second, [(ORDERS, [0])]))
        assert refused == {(ORDERS, 0): ErrorCode.preferred_leader_not_available}
        await brokers.start(1)
        await eventually_async(lambda: brokers.members(2, ORDERS) == {1, 2})
        assert elected(await elect(second, None)) == {(ORDERS, 0): ErrorCode.none}
        assert state(second).leader == 1
        await eventually_async(lambda: brokers.running[1]._replicas.get(ORDERS, 0))

    run(tmp_path, scenario)


def test_replica_out_of_sync_leads_only_after_an_unclean_election_request(tmp_path: Path) -> None:
    """A partition waits for a replica with all records, unless an operator gives up the missing ones."""

    async def scenario(brokers: Brokers) -> None:
        harnesses = await started(brokers, 2)
        first, second = harnesses
        await create(first, [1, 2])
        await first.append(ORDERS, b"both have it")
        await eventually_async(lambda: brokers.members(1, ORDERS) == {1, 2})
        await brokers.stop(2)
        await eventually_async(lambda: brokers.members(1, ORDERS) == {1})
        await first.append(ORDERS, b"only one has it")
        await brokers.stop(1)
        second = await brokers.start(2)
        await eventually_async(lambda: second.context.image.controller_id == 2)
        assert state(second).leader == NO_LEADER
        assert state(second).isr == (1,)
        refused = elected(await elect(second, [(ORDERS, [0])]))
        assert refused == {(ORDERS, 0): ErrorCode.preferred_leader_not_available}
        assert elected(await elect(second, [(ORDERS, [0])], 1)) == {(ORDERS, 0): ErrorCode.none}
        assert (state(second).leader, state(second).isr) == (2, (2,))
        assert any("unclean leader elected" in line and line.startswith("warning") for line in brokers.lines)
        await second.append(ORDERS, b"instead")
        first = await brokers.start(1)
        await eventually_async(lambda: brokers.members(2, ORDERS) == {1, 2})
        assert values(second) == [b"both have it", b"instead"]
        log = first.context.logs.get(first.context.image.topics[ORDERS].id, 0)
        assert log is not None
        assert log.log_end_offset == 2

    run(tmp_path, scenario)


def test_no_leader_is_elected_without_a_registered_replica(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harnesses = await started(brokers, 2)
        await create(harnesses[0], [2])
        await brokers.stop(2)
        first = harnesses[0]
        await eventually_async(lambda: state(first).leader == NO_LEADER)
        response: Any = await elect(first, [(ORDERS, [0])], 1)
        assert elected(response) == {(ORDERS, 0): ErrorCode.eligible_leaders_not_available}

    run(tmp_path, scenario)


@pytest.mark.slow
def test_throttle_delays_a_reassignment_but_not_in_sync_replicas(tmp_path: Path) -> None:
    rate, record_bytes, count = 1_000_000, 20_000, 60

    async def scenario(brokers: Brokers) -> None:
        harnesses = await started(brokers, 3)
        first = harnesses[0]
        await create(first, [1, 2], leader_replication_throttled_replicas="0:1")
        settings = {"leader.replication.throttled.rate": str(rate)}
        configs = [{"name": name, "config_operation": 0, "value": value} for name, value in settings.items()]
        altered = await first.ask(
            44,
            1,
            {
                "resources": [{"resource_type": 4, "resource_name": "", "configs": configs}],
                "validate_only": False,
            },
        )
        assert altered.responses[0].error_code == 0
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(count):
            await first.append(ORDERS, bytes([number]) * record_bytes)
        assert brokers.members(1, ORDERS) == {1, 2}
        copied_in_sync = loop.time() - began
        began = loop.time()
        await moved(first, [1, 2, 3])
        seconds = loop.time() - began
        # The first content of the bucket is sent at once.
        assert seconds > 0.8 * (count * record_bytes / rate - 0.25)
        assert copied_in_sync < seconds

    run(tmp_path, scenario, durability="os")


@pytest.mark.slow
def test_throttled_follower_fetches_at_the_rate(tmp_path: Path) -> None:
    rate, record_bytes, count = 1_000_000, 20_000, 60

    async def scenario(brokers: Brokers) -> None:
        harnesses = await started(brokers, 2)
        first = harnesses[0]
        await create(first, [1], follower_replication_throttled_replicas="*")
        for number in range(count):
            await first.append(ORDERS, bytes([number]) * record_bytes)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await moved(first, [2])
        # A fetch has its full size, and is paid for before the next one.
        assert loop.time() - began > 0.8 * ((count * record_bytes - (1 << 20)) / rate)

    settings = {"follower_replication_throttled_rate": str(rate)}
    run(tmp_path, scenario, durability="os", **settings)
