"""AddPartitionsToTxn and EndTxn get the same response and leave the same state, decided at once or by a task."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from penstock.cluster.internal_topics import TRANSACTIONS_TOPIC
from penstock.errors import ErrorCode
from penstock.model import Offset
from penstock.net.response import PendingResponse
from penstock.records.iteration import iterate, read_batches
from penstock.server.security import Operation, ResourceType
from penstock.transactions.record_codec import decode_record
from penstock.transactions.shard import TransactionShard
from penstock.transactions.transaction import Transaction
from penstock.wire.framing import SIZE_PREFIX
from penstock.wire.messages import decode_response_frame, encode_request_frame
from support.eventually import eventually_async
from support.harness import Harness, serve
from support.transaction_wire import ADD_PARTITIONS, END_TXN, Producer

REQUESTS = 150
PLAIN, GENERAL = "id-plain", "id-other"


class Wish(NamedTuple):
    """Request for either of two transactional ids with the same state."""

    api_key: int
    version: int
    committed: bool
    epoch_change: int
    id_change: int
    topics: dict[str, list[int]]


def wishes(random: Random) -> list[Wish]:
    return [
        Wish(
            (api_key := random.choice([ADD_PARTITIONS, ADD_PARTITIONS, END_TXN])),
            random.randrange(4 if api_key == ADD_PARTITIONS else 6),
            random.random() < 0.7,
            random.choice([0, 0, 0, 0, 0, 1, -1]),
            random.choice([0, 0, 0, 0, 0, 5_000]),
            {
                random.choice(["orders", "orders", "orders", "secret", "nothing"]): random.sample(range(4), 2)
                for _ in range(random.choice([1, 1, 1, 2, 0]))
            },
        )
        for _ in range(REQUESTS)
    ]


def frame_of(wish: Wish, producer: Producer) -> memoryview:
    topics = [{"name": name, "partitions": indexes} for name, indexes in wish.topics.items()]
    named = {
        "transactional_id": producer.transactional_id,
        "producer_id": producer.producer_id + wish.id_change,
        "producer_epoch": max(0, producer.epoch + wish.epoch_change),
    }
    fields: dict[str, Any] = {**named, "committed": wish.committed}
    if wish.api_key == ADD_PARTITIONS:
        fields = {f"v3_and_below_{name}": value for name, value in (*named.items(), ("topics", topics))}
    return memoryview(encode_request_frame(wish.api_key, wish.version, 7, "test", fields))[SIZE_PREFIX:]


async def answer(broker: Harness, frame: memoryview) -> bytes:
    given = broker._broker._dispatcher.dispatch(broker.session, frame)
    if isinstance(given, PendingResponse):
        done = asyncio.Event()
        given.when_done(done.set)
        await done.wait()
        assert given.error is None
        given = given.parts
    assert given is not None
    [part] = given
    assert isinstance(part, bytes)
    return part


def shown(value: Transaction | None) -> object:
    """Fields that are equal for both ids: all but the producer id and times."""
    if value is None:
        return None
    next_id = value.next_producer_id >= 0
    return value.state, value.partitions, value.producer.epoch, value.earlier.epoch, value.version, next_id


def transaction(broker: Harness, name: str) -> Transaction:
    return broker.context.transactions.shard_of(name).transactions[name]


def records_of(broker: Harness, name: str) -> list[object]:
    index = broker.context.transactions.shard_of(name).partition
    log = broker.context.replicas.get(TRANSACTIONS_TOPIC, index).log
    content = log.read(Offset(0), 10**8, below=log.log_end_offset, at_least_one=True, wait=True).read()
    decoded = (
        decode_record(bytes(record.key or b""), record.value and bytes(record.value))
        for header, batch in read_batches(memoryview(content))
        for record in iterate(batch, header)
    )
    return [shown(value) for transactional_id, value in decoded if transactional_id == name]


def marker_offsets(broker: Harness, producer_id: int) -> list[int]:
    """Numbers of partitions: 1 for each in which the producer has no open transaction."""
    found = []
    for index in range(3):
        entry = broker.context.replicas.get("orders", index).log.producers.get(producer_id)
        found.append(-1 if entry is None else int(entry.transaction_start < 0))
    return found


@pytest.mark.parametrize("durability", ["os", "auto"])
@pytest.mark.parametrize("seed", range(2))
def test_transaction_requests_without_a_task_get_the_same_responses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, durability: str
) -> None:
    plain_end, plain_addition = TransactionShard.plain_end, TransactionShard.plain_addition

    async def scenario(broker: Harness) -> None:
        for name in ("orders", "secret"):
            await broker.create(name, partitions=3)
        plain, general = Producer(broker, PLAIN), Producer(broker, GENERAL)
        await plain.init()
        await general.init()
        broker.deny((Operation.WRITE, ResourceType.TOPIC, "secret"))
        codes = set()
        for wish in wishes(Random(seed)):
            monkeypatch.setattr(TransactionShard, "plain_end", plain_end)
            monkeypatch.setattr(TransactionShard, "plain_addition", plain_addition)
            first = await answer(broker, frame_of(wish, plain))
            monkeypatch.setattr(TransactionShard, "plain_end", lambda *_: None)
            monkeypatch.setattr(TransactionShard, "plain_addition", lambda *_: None)
            second = await answer(broker, frame_of(wish, general))
            if wish.api_key == END_TXN:
                codes.add(follow(plain, wish, first))
                assert follow(general, wish, second) is follow(plain, wish, first), wish
                assert (plain.epoch, len(first)) == (general.epoch, len(second)), wish
            else:
                assert first == second, wish
            await eventually_async(
                lambda: not any(transaction(broker, name).is_ending for name in (PLAIN, GENERAL))
            )
            assert shown(transaction(broker, PLAIN)) == shown(transaction(broker, GENERAL)), wish
        assert len(codes) >= 3, codes
        assert records_of(broker, PLAIN) == records_of(broker, GENERAL) != []
        ended = [marker_offsets(broker, producer.producer_id) for producer in (plain, general)]
        assert ended[0] == ended[1]

    serve(tmp_path, scenario, {"durability": durability})


def follow(producer: Producer, wish: Wish, frame: bytes) -> ErrorCode:
    """Take over the producer of the next transaction, as a client does."""
    told = decode_response_frame(END_TXN, wish.version, memoryview(frame)[SIZE_PREFIX:])
    if wish.version >= 5 and told.error_code == ErrorCode.none:
        producer.producer_id, producer.epoch = told.producer_id, told.producer_epoch
    return ErrorCode(told.error_code)
