"""Open transactions that no coordinator knows are aborted; transactions that may be committed are not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cluster.internal_topics import TRANSACTIONS_TOPIC
from penstock.errors import ErrorCode, StorageError
from penstock.model import ProducerId, TopicPartition
from penstock.records.batch import read_header
from penstock.records.building import NewRecord, build_batch
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType
from penstock.storage.producer_state import ProducerEntry
from penstock.wire.known_transactions import (
    KnownTransactions,
    OpenTransaction,
    decode_known_transactions_response,
    encode_known_transactions_request,
)
from support.eventually import eventually_async
from support.harness import Harness, serve
from support.transaction_wire import Producer, ask_raw, fetch, find_coordinator, seen
from support.whole_brokers import Brokers, run

SOON = {
    "transaction.max.timeout.ms": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "20",
    "transaction.state.log.num.partitions": "3",
}
SELDOM = {"transaction.state.log.num.partitions": "3"}
A0 = TopicPartition("a", 0)
LOST_ID = 4711
WRITE_TXN_MARKERS = 27


def write_lost(broker: Harness, producer_id: int = LOST_ID, epoch: int = 5) -> None:
    """Append a batch of a transaction that its coordinator does not know."""
    batch = memoryview(
        build_batch(
            [NewRecord(b"k", b"lost", 1_000)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
    )
    replica = broker.context.replicas.get("a", 0)
    replica.verified._verified[producer_id] = epoch
    replica.append_as_leader(batch, read_header(batch), broker.context.clock.now_ms())


def entry_of(broker: Harness, producer_id: int = LOST_ID) -> ProducerEntry:
    entry = broker.context.replicas.get("a", 0).log.producers.get(producer_id)
    assert entry is not None
    return entry


def is_open(broker: Harness, producer_id: int = LOST_ID) -> bool:
    return entry_of(broker, producer_id).transaction_start >= 0


async def abort_as_operator(
    broker: Harness, producer_id: int = LOST_ID, epoch: int = 5, *, commit: bool = False
) -> ErrorCode:
    marker = {
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "transaction_result": commit,
        "topics": [{"name": "a", "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    answer = await broker.ask(WRITE_TXN_MARKERS, 1, {"markers": [marker]})
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


def test_unknown_transaction_is_aborted_and_readers_continue(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await find_coordinator(broker, 1, "somebody")
        write_lost(broker)
        await broker.append("a", b"after")
        await eventually_async(lambda: not is_open(broker))
        assert seen(await fetch(broker, "a")) == [b"after"]
        assert broker.context.hanging_transactions.aborts == 1
        assert entry_of(broker).coordinator_epoch == -1, "no coordinator is fenced by it"

    serve(tmp_path, scenario, SOON)


def test_transaction_from_before_any_coordinator_is_aborted(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        write_lost(broker)
        await eventually_async(lambda: not is_open(broker))

    serve(tmp_path, scenario, SOON)


def test_transaction_is_left_alone_while_its_coordinator_knows_it(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        producer = Producer(broker, version=2)
        await producer.init()
        await producer.write("a", b"x")
        hanging = broker.context.hanging_transactions
        suspect = hanging.suspect(A0, ProducerId(producer.producer_id))
        assert await hanging.abort([suspect]) == [ErrorCode.invalid_txn_state]
        assert (
            await abort_as_operator(broker, producer.producer_id, producer.epoch)
            is ErrorCode.invalid_txn_state
        )
        assert await producer.end(commit=True) is ErrorCode.none
        await eventually_async(lambda: not is_open(broker, producer.producer_id))
        assert seen(await fetch(broker, "a")) == [b"x"]

    serve(tmp_path, scenario, SELDOM)


def test_open_transaction_of_the_same_producer_elsewhere_does_not_keep_it(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a", partitions=2)
        producer = Producer(broker, version=1)
        await producer.init()
        await producer.write("a", b"x", partition=1)
        write_lost(broker, producer.producer_id, producer.epoch)
        producer.sequences["a", 0] = 1
        assert await abort_as_operator(broker, producer.producer_id, producer.epoch) is ErrorCode.none
        await producer.write("a", b"y")
        assert await producer.end(commit=True) is ErrorCode.none
        await eventually_async(lambda: not is_open(broker, producer.producer_id))
        assert seen(await fetch(broker, "a")) == [b"y"]

    serve(tmp_path, scenario, SELDOM)


def test_transaction_with_a_new_record_during_the_check_is_not_aborted(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        write_lost(broker)
        hanging = broker.context.hanging_transactions
        suspect = hanging.suspect(A0, ProducerId(LOST_ID))
        asking = asyncio.ensure_future(hanging.abort([suspect]))
        producers = broker.context.replicas.get("a", 0).log.producers
        entry = entry_of(broker)
        producers._entries[LOST_ID] = entry._replace(last_write_ms=entry.last_write_ms + 1)
        assert await asking == [ErrorCode.concurrent_transactions]
        assert is_open(broker)

    serve(tmp_path, scenario, SELDOM)


def _loses_a_shard(broker: Harness) -> None:
    broker.context.transactions._shards.unload(1)


def _leads_a_shard_in_another_epoch(broker: Harness) -> None:
    shard = broker.context.transactions._shards.get(1)
    assert shard is not None
    shard.coordinator_epoch = type(shard.coordinator_epoch)(shard.coordinator_epoch - 1)


def _is_kept_from_the_store(broker: Harness) -> None:
    async def fail() -> None:
        raise StorageError("the store is down")

    broker.context.metadata.confirm = fail  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "trouble", [_loses_a_shard, _leads_a_shard_in_another_epoch, _is_kept_from_the_store]
)
def test_no_transaction_is_aborted_before_every_coordinator_has_answered(
    tmp_path: Path, trouble: Callable[[Harness], None]
) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        await find_coordinator(broker, 1, "somebody")
        await eventually_async(lambda: len(broker.context.transactions.shards) == 3)
        write_lost(broker)
        trouble(broker)
        assert await abort_as_operator(broker) is ErrorCode.coordinator_not_available
        assert is_open(broker)

    serve(tmp_path, scenario, SELDOM)


def test_operator_may_abort_only_open_transactions_without_coordinator(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("a")
        write_lost(broker)
        assert await abort_as_operator(broker, commit=True) is ErrorCode.cluster_authorization_failed
        assert await abort_as_operator(broker, epoch=4) is ErrorCode.invalid_producer_epoch
        assert await abort_as_operator(broker, 4712) is ErrorCode.invalid_txn_state
        broker.deny((Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME))
        assert await abort_as_operator(broker) is ErrorCode.cluster_authorization_failed
        broker.deny()
        assert is_open(broker)
        assert await abort_as_operator(broker) is ErrorCode.none
        assert not is_open(broker)
        assert await abort_as_operator(broker) is ErrorCode.invalid_txn_state

    serve(tmp_path, scenario, SELDOM)


def test_known_transactions_needs_an_authenticated_broker(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        frame = encode_known_transactions_request(7, "somebody", [OpenTransaction(ProducerId(LOST_ID), A0)])
        answer = decode_known_transactions_response(await ask_raw(broker, frame))
        assert answer == KnownTransactions(ErrorCode.cluster_authorization_failed)

    serve(tmp_path, scenario, SELDOM)


def test_coordinators_of_other_brokers_are_asked(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        at = {number: await brokers.start(number) for number in (1, 2, 3)}
        await at[1].create("a")
        await eventually_async(lambda: all("a" in each.context.image.topics for each in at.values()))
        leader = next(each for each in at.values() if _leads(each, "a", 0))
        await find_coordinator(leader, 1, "somebody")
        await eventually_async(lambda: _all_loaded(list(at.values())))
        elsewhere = next(
            (number, each, name)
            for number, each in at.items()
            if each is not leader
            for name in map(str, range(100))
            if each.context.transactions.leader_of(name) == number
        )
        _, coordinator, name = elsewhere
        producer = Producer(coordinator, name, version=2)
        await producer.init()
        await producer.write("a", b"x", leader=leader)
        write_lost(leader)
        code = await abort_as_operator(leader, producer.producer_id, producer.epoch)
        assert code is ErrorCode.invalid_txn_state
        assert await abort_as_operator(leader) is ErrorCode.none
        assert is_open(leader, producer.producer_id)

    run(tmp_path, scenario, transaction_state_log_num_partitions="3")


def _leads(broker: Harness, topic: str, partition: int) -> bool:
    state = broker.context.image.partition(TopicPartition(topic, partition))
    return state is not None and state.leader == broker.context.node_id


def _all_loaded(brokers: list[Harness]) -> bool:
    topic = brokers[0].context.image.topic(TRANSACTIONS_TOPIC)
    shards = {shard.partition for each in brokers for shard in each.context.transactions.shards}
    return topic is not None and len(shards) == len(topic.partitions)
