"""Work of queues without consumers: expired records, and dead letters of share-partitions after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_dead_letters import headers_of, letters, offsets, set_topic
from test_share_expiry import append

from penstock.cluster.memory import MemoryEnsemble
from penstock.errors import ErrorCode
from penstock.queues import expiry_index
from penstock.records.compression import Codec
from support.eventually import eventually_async
from support.harness import Harness, serve
from support.queue_wire import QueueClient
from support.share_wire import REJECT, RELEASE, SETTINGS, ShareMember, configure, first_take, run

CODECS = pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])


async def sweep(broker: Harness) -> None:
    """Run one round after all share-partitions are loaded."""
    upkeep = broker.context.queue_upkeep
    assert upkeep is not None
    await upkeep.unused.run()
    for leader in broker.context.share.partitions.all:
        await leader.loaded()
    await upkeep.run()


@pytest.mark.slow
@CODECS
def test_expired_records_without_consumers_become_dead_letters(
    tmp_path: Path, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry_index, "SECTION_BYTES", 200)  # several sections

    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.create("dead", 1)
        await set_topic(broker)
        await first_take(member)
        await configure(broker, queue_topic="t")
        await append(broker, None, 0, None, 0, 0, codec=codec)
        await append(broker, 0, 3_600_000, codec=codec)
        await sweep(broker)
        await eventually_async(lambda: len(letters(broker)) == 4)
        assert offsets(letters(broker)) == [1, 3, 4, 5]
        assert headers_of(letters(broker)[0])["penstock-dead-reason"] == "expired"
        assert headers_of(letters(broker)[0])["penstock-dead-attempts"] == "0"
        await sweep(broker)
        assert [each.offset for each in await QueueClient(broker).receive(10)] == [0]
        assert [each.offset for each in await QueueClient(broker).receive(10)] == [2]
        assert [each.offset for each in await QueueClient(broker).receive(10)] == [6]
        assert len(letters(broker)) == 4

    run(tmp_path, scenario, batches=0)


@pytest.mark.slow
def test_queued_record_expires_at_its_time_and_not_before(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.create("dead", 1)
        await set_topic(broker)
        await first_take(member)
        await append(broker, 1_500, None)
        await sweep(broker)
        (leader,) = broker.context.share.partitions.all
        assert leader.partition is not None
        assert leader.partition.archiving == 0
        due_ms = broker.context.clock.now_ms() + 1_500
        await eventually_async(lambda: broker.context.clock.now_ms() > due_ms)
        await sweep(broker)
        await eventually_async(lambda: offsets(letters(broker)) == [0])

    run(tmp_path, scenario, batches=0)


def test_expired_record_that_a_consumer_holds_stays_until_it_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.queue_upkeep.expiry_sweep._HELD_MS", 0)

    async def scenario(broker: Harness, member: ShareMember) -> None:
        await broker.create("dead", 1)
        await set_topic(broker)
        await append(broker, 300)
        assert await first_take(member) == [(0, 0, 1)]
        due_ms = broker.context.clock.now_ms() + 300
        await eventually_async(lambda: broker.context.clock.now_ms() > due_ms)
        await sweep(broker)
        (leader,) = broker.context.share.partitions.all
        assert leader.partition is not None
        assert leader.partition.acquired == 1
        await member.acknowledge("t", [(0, 0, [RELEASE])])
        await sweep(broker)
        await eventually_async(lambda: offsets(letters(broker)) == [0])

    run(tmp_path, scenario, batches=0, retry_backoff_ms=60_000)


@pytest.mark.parametrize("is_queue", [True, False])
def test_dead_letters_are_written_after_a_restart_without_a_consumer(tmp_path: Path, is_queue: bool) -> None:
    ensemble = MemoryEnsemble()

    async def before(broker: Harness) -> None:
        await broker.create("t", 1)
        await configure(broker, auto_offset_reset="earliest", **({"queue_topic": "t"} if is_queue else {}))
        await set_topic(broker)
        member = ShareMember(broker)
        await member.join("t")
        await broker.append("t", b"value")
        queue = QueueClient(broker)
        (given,) = await queue.receive(1, wait_ms=5_000)
        assert await queue.settle(given, REJECT) is ErrorCode.none

    async def after(broker: Harness) -> None:
        await broker.create("dead", 1)
        assert broker.context.queue_upkeep is not None
        await eventually_async(lambda: len(letters(broker)) == 1)

    serve(tmp_path, before, SETTINGS, ensemble)
    serve(tmp_path, after, SETTINGS, ensemble)
