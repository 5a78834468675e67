"""Produce requests of an idempotent producer, pipelined behind one that is refused with a retriable error."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_produce_handler import produce

from penstock.errors import ErrorCode
from penstock.model import BrokerId, LeaderEpoch, TopicId
from penstock.records.building import NewRecord, build_batch
from penstock.replication.in_sync import InSync
from penstock.replication.refused_batches import FORMER_LEADER_SECONDS, RefusedBatches
from penstock.replication.replica import Replica
from penstock.wire.produce import ProducePartition, ProduceTopic
from support.eventually import eventually_async
from support.harness import Harness, serve
from support.whole_brokers import Brokers, run


def batch(sequence: int, epoch: int = 0) -> memoryview:
    record = NewRecord(b"k", b"value", 1_000)
    return memoryview(build_batch([record], producer_id=5, producer_epoch=epoch, base_sequence=sequence))


class Sender:
    """Producer that sends batches of one record each, one request after the other."""

    def __init__(self, broker: Harness, topic: str = "orders", topic_id: TopicId | None = None) -> None:
        self._broker = broker
        self._topic = topic
        self._topic_id = topic_id

    async def send(self, sequence: int, epoch: int = 0, *, damaged: bool = False) -> ErrorCode:
        content = batch(sequence, epoch)
        if damaged:
            content[-1] ^= 1
        name = self._topic if self._topic_id is None else None
        topic = ProduceTopic(name, self._topic_id, [ProducePartition(0, content)])
        version = 9 if self._topic_id is None else 13
        (result,) = await produce(self._broker, topic, version=version)
        return ErrorCode(result.error_code)

    async def expect_same(self, code: ErrorCode, first: int) -> None:
        """Expect the same error for the next batches, until the refused one is sent again."""
        assert [await self.send(first + 1), await self.send(first + 2)] == [code, code]
        assert [await self.send(first + step) for step in range(4)] == [ErrorCode.none] * 4


def lead(replica: Replica) -> None:
    me = BrokerId(1)
    in_sync = InSync(me, (me,), frozenset((me,)), 0, replica.log.log_end_offset, {me: "m"}, 0)
    replica.become_leader(LeaderEpoch(replica.partition.leader_epoch + 1), in_sync)


@pytest.mark.parametrize("stored", [0, 3])
def test_batches_sent_around_the_start_of_a_leadership_share_one_error(tmp_path: Path, stored: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders")
        sender = Sender(broker)
        for sequence in range(stored):
            assert await sender.send(sequence) is ErrorCode.none
        replica = broker.context.replicas.get("orders", 0)
        replica.stop_leading()
        assert await sender.send(stored) is ErrorCode.not_leader_or_follower
        lead(replica)
        await sender.expect_same(ErrorCode.not_leader_or_follower, stored)
        assert replica.log.log_end_offset == stored + 4

    serve(tmp_path, scenario, {"node.id": "1"})


@pytest.mark.parametrize("stored", [0, 3])
def test_batches_sent_under_min_isr_share_one_error(tmp_path: Path, stored: int) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders")
        sender = Sender(broker)
        for sequence in range(stored):
            assert await sender.send(sequence) is ErrorCode.none
        replica = broker.context.replicas.get("orders", 0)
        replica.min_insync_replicas = 2
        assert await sender.send(stored) is ErrorCode.not_enough_replicas
        replica.min_insync_replicas = 1
        await sender.expect_same(ErrorCode.not_enough_replicas, stored)

    serve(tmp_path, scenario)


def test_batches_behind_one_that_found_no_space_share_its_error(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders")
        sender = Sender(broker)
        assert await sender.send(0) is ErrorCode.none
        context = broker.context.replicas.get("orders", 0).log.context
        context.full = True
        assert await sender.send(1) is ErrorCode.kafka_storage_error
        context.full = False
        await sender.expect_same(ErrorCode.kafka_storage_error, 1)

    serve(tmp_path, scenario)


def test_batches_behind_a_damaged_one_share_its_error(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders")
        sender = Sender(broker)
        assert await sender.send(0, damaged=True) is ErrorCode.corrupt_message
        await sender.expect_same(ErrorCode.corrupt_message, 0)

    serve(tmp_path, scenario)


def test_batches_sent_around_the_creation_of_a_topic_share_one_error(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        sender = Sender(broker)
        assert await sender.send(0) is ErrorCode.unknown_topic_or_partition
        await broker.create("orders")
        await sender.expect_same(ErrorCode.unknown_topic_or_partition, 0)

    serve(tmp_path, scenario)


def test_batches_sent_by_topic_id_before_the_broker_knows_it_share_one_error(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        made = await broker.create("orders")
        sender = Sender(broker, topic_id=TopicId(made.topic_id))
        metadata = broker.context.metadata
        known = metadata.image
        metadata.image = known.without_topics(["orders"])
        assert await sender.send(0) is ErrorCode.unknown_topic_id
        metadata.image = known
        await sender.expect_same(ErrorCode.unknown_topic_id, 0)

    serve(tmp_path, scenario)


async def overtaken(broker: Harness, epoch: int, stored: int = 3) -> tuple[Sender, int]:
    """Producer whose last batch was sent to the former leader and lost there, and the sequence of that batch.

    librdkafka sends the next batch to a new leader while earlier ones are in flight to the former leader.
    """
    await broker.create("orders")
    sender = Sender(broker)
    for sequence in range(stored):
        assert await sender.send(sequence) is ErrorCode.none
    lead(broker.context.replicas.get("orders", 0))
    return sender, 0 if epoch else stored


@pytest.mark.parametrize(
    ("epoch", "stored"), [(0, 3), (1, 3), (0, 0)], ids=["same epoch", "new epoch", "new producer"]
)
def test_batch_behind_one_in_flight_to_the_former_leader_is_retried(
    tmp_path: Path, epoch: int, stored: int
) -> None:
    async def scenario(broker: Harness) -> None:
        sender, lost = await overtaken(broker, epoch, stored)
        refused = [await sender.send(lost + step, epoch) for step in (1, 2, 1)]
        assert refused == [ErrorCode.not_leader_or_follower] * 3
        assert [await sender.send(lost + step, epoch) for step in range(4)] == [ErrorCode.none] * 4
        assert broker.context.replicas.get("orders", 0).log.log_end_offset == stored + 4
        assert await sender.send(lost + 9, epoch) is ErrorCode.out_of_order_sequence_number

    serve(tmp_path, scenario, {"node.id": "1"})


def test_gap_left_by_the_former_leader_gets_out_of_order_sequence_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: Harness) -> None:
        sender, lost = await overtaken(broker, 0)
        assert await sender.send(lost + 1) is ErrorCode.not_leader_or_follower
        now = RefusedBatches.now
        monkeypatch.setattr(RefusedBatches, "now", lambda refused: now(refused) + FORMER_LEADER_SECONDS)
        assert await sender.send(lost + 1) is ErrorCode.out_of_order_sequence_number
        monkeypatch.undo()

    serve(tmp_path, scenario, {"node.id": "1"})


def test_new_producer_epoch_ends_the_wait_for_a_refused_batch(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders")
        sender = Sender(broker)
        assert await sender.send(0) is ErrorCode.none
        replica = broker.context.replicas.get("orders", 0)
        replica.min_insync_replicas = 2
        assert await sender.send(1) is ErrorCode.not_enough_replicas
        replica.min_insync_replicas = 1
        assert await sender.send(0, epoch=1) is ErrorCode.none
        assert await sender.send(2, epoch=1) is ErrorCode.out_of_order_sequence_number

    serve(tmp_path, scenario)


def test_batches_behind_a_permanently_refused_one_are_out_of_order(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders", max_message_bytes="1000")
        sender = Sender(broker)
        assert await sender.send(0) is ErrorCode.none
        big = build_batch(
            [NewRecord(b"k", b"v" * 2_000, 1_000)], producer_id=5, producer_epoch=0, base_sequence=1
        )
        (result,) = await produce(
            broker, ProduceTopic("orders", None, [ProducePartition(0, memoryview(big))])
        )
        assert result.error_code == ErrorCode.message_too_large
        assert await sender.send(2) is ErrorCode.out_of_order_sequence_number

    serve(tmp_path, scenario)


def test_retry_older_than_five_batches_is_a_duplicate_after_a_restart(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        broker = await brokers.start(1)
        await broker.create("orders")
        sender = Sender(broker)
        assert [await sender.send(sequence) for sequence in range(8)] == [ErrorCode.none] * 8
        await brokers.stop(1)
        broker = await brokers.start(1)
        await eventually_async(lambda: broker.context.replicas.get("orders", 0))
        assert await Sender(broker).send(0) is ErrorCode.duplicate_sequence_number

    run(tmp_path, scenario)
