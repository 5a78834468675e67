"""A transactional producer and a reader on frames of the protocol, for both versions of transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import ErrorCode
from penstock.net.response import PendingResponse
from penstock.records.building import NewRecord, build_batch
from penstock.records.control import read_marker
from penstock.records.iteration import iterate, read_batches
from penstock.records.log_slice import LogSlice
from penstock.wire.fetch import FetchPartition, FetchRequest, FetchResult, FetchTopic
from penstock.wire.fetch_client import decode_fetch_response, encode_fetch_request
from penstock.wire.framing import SIZE_PREFIX
from penstock.wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from penstock.wire.produce_client import decode_produce_response, encode_produce_request
from support.harness import Harness, content_of

FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, OFFSET_COMMIT = (
    10,
    22,
    24,
    25,
    26,
    28,
)
OFFSET_FETCH, LIST_OFFSETS = 9, 2
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
FETCH_VERSION = 12
LOAD_SECONDS = 20.0


async def ask_raw(broker: Harness, frame: bytes) -> memoryview:
    answer = broker._broker._dispatcher.dispatch(broker.session, memoryview(bytearray(frame))[SIZE_PREFIX:])
    if isinstance(answer, PendingResponse):
        done = asyncio.Event()
        answer.when_done(done.set)
        await done.wait()
        assert answer.error is None, answer.error
        answer = answer.parts
    assert answer is not None
    return memoryview(content_of(answer))[SIZE_PREFIX:]


async def find_coordinator(broker: Harness, kind: int, key: str) -> int:
    """Wait for the coordinator of a group (0) or a transactional id (1), and return its broker."""
    async with asyncio.timeout(20):
        while True:
            asked = {"key_type": kind, "coordinator_keys": [key]}
            [found] = (await broker.ask(FIND_COORDINATOR, 4, asked)).coordinators
            if found.error_code == ErrorCode.none:
                return int(found.node_id)
            await asyncio.sleep(0.01)


@dataclass
class Producer:
    """Producer that uses one broker for all requests, unless another coordinator is given."""

    broker: Harness
    transactional_id: str = "mine"
    version: int = 1
    producer_id: int = -1
    epoch: int = -1
    group_coordinator: Harness | None = None

    def __post_init__(self) -> None:
        self.sequences: dict[tuple[str, int], int] = {}

    async def init(self, timeout_ms: int = 60_000) -> None:
        await find_coordinator(self.broker, 1, self.transactional_id)
        fields = {
            "transactional_id": self.transactional_id,
            "transaction_timeout": timeout_ms,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }
        answer = await self.broker.ask(INIT_PRODUCER_ID, 4, fields)
        async with asyncio.timeout(LOAD_SECONDS):
            while ErrorCode(answer.error_code).retriable:
                await asyncio.sleep(0.02)
                answer = await self.broker.ask(INIT_PRODUCER_ID, 4, fields)
        assert answer.error_code == ErrorCode.none, answer.error_code
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()

    async def add(self, topic: str, *partitions: int) -> ErrorCode:
        answer = await self.broker.ask(
            ADD_PARTITIONS,
            3,
            {
                "v3_and_below_transactional_id": self.transactional_id,
                "v3_and_below_producer_id": self.producer_id,
                "v3_and_below_producer_epoch": self.epoch,
                "v3_and_below_topics": [{"name": topic, "partitions": list(partitions)}],
            },
        )
        [result] = answer.results_by_topic_v3_and_below
        return ErrorCode(result.results_by_partition[0].partition_error_code)

    async def produce(
        self,
        topic: str,
        *values: bytes,
        partition: int = 0,
        sequence: int | None = None,
        transactional_id: str | None = "",
        version: int | None = None,
        leader: Harness | None = None,
    ) -> ErrorCode:
        """Produce without adding the partition first; version 1 adds it explicitly."""
        place = (topic, partition)
        base_sequence = self.sequences.get(place, 0) if sequence is None else sequence
        batch = build_batch(
            [NewRecord(b"k", value, 1_000) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=base_sequence,
            transactional=True,
        )
        id_sent = self.transactional_id if transactional_id == "" else transactional_id
        data = [ProduceTopic(topic, None, [ProducePartition(partition, memoryview(batch))])]
        version = version or (12 if self.version == 2 else 9)
        frame = encode_produce_request(7, version, "test", ProduceRequest(id_sent, -1, 5_000, data))
        response = decode_produce_response(await ask_raw(leader or self.broker, frame), version)
        code = ErrorCode(response.topics[0].partitions[0].error_code)
        if code is ErrorCode.none:
            self.sequences[place] = base_sequence + len(values)
        return code

    async def write(
        self, topic: str, *values: bytes, partition: int = 0, leader: Harness | None = None
    ) -> None:
        if self.version == 1:
            async with asyncio.timeout(20):
                while (code := await self.add(topic, partition)) is ErrorCode.concurrent_transactions:
                    await asyncio.sleep(0.01)
            assert code is ErrorCode.none, code
        code = await self.produce(topic, *values, partition=partition, leader=leader)
        assert code is ErrorCode.none, code

    async def end(self, *, commit: bool) -> ErrorCode:
        version = 5 if self.version == 2 else 3
        answer = await self.broker.ask(
            END_TXN,
            version,
            {
                "transactional_id": self.transactional_id,
                "producer_id": self.producer_id,
                "producer_epoch": self.epoch,
                "committed": commit,
            },
        )
        if self.version == 2 and answer.error_code == ErrorCode.none:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return ErrorCode(answer.error_code)

    async def send_offsets(
        self,
        group: str,
        topic: str,
        offset: int,
        *,
        generation: int = -1,
        member_id: str = "",
        version: int | None = None,
        add: bool = True,
    ) -> ErrorCode:
        """Commit an offset in the transaction; wait while the coordinator of the group loads, as clients do."""
        if self.version == 1 and add:
            answer = await self.broker.ask(
                ADD_OFFSETS,
                3,
                {
                    "transactional_id": self.transactional_id,
                    "producer_id": self.producer_id,
                    "producer_epoch": self.epoch,
                    "group_id": group,
                },
            )
            if answer.error_code != ErrorCode.none:
                return ErrorCode(answer.error_code)
        if version is None:
            version = 5 if self.version == 2 else 3
        asked = {
            "transactional_id": self.transactional_id,
            "group_id": group,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "generation_id": generation,
            "member_id": member_id,
            "group_instance_id": None,
            "topics": [
                {
                    "name": topic,
                    "partitions": [
                        {
                            "partition_index": 0,
                            "committed_offset": offset,
                            "committed_leader_epoch": -1,
                            "committed_metadata": "",
                        }
                    ],
                }
            ],
        }
        async with asyncio.timeout(20):
            while True:
                answer = await (self.group_coordinator or self.broker).ask(OFFSET_COMMIT, version, asked)
                code = ErrorCode(answer.topics[0].partitions[0].error_code)
                if code is not ErrorCode.coordinator_load_in_progress:
                    return code
                await asyncio.sleep(0.01)


async def fetch(
    broker: Harness,
    topic: str,
    offset: int = 0,
    *,
    isolation: int = READ_COMMITTED,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
) -> FetchResult:
    asked = FetchPartition(partition, offset, max_bytes)
    request = FetchRequest(
        max_wait_ms,
        min_bytes,
        [FetchTopic(topic, None, [asked])],
        [],
        isolation_level=isolation,
    )
    frame = encode_fetch_request(7, FETCH_VERSION, "test", request)
    response = decode_fetch_response(await ask_raw(broker, frame), FETCH_VERSION)
    return response.topics[0].partitions[0]


def seen(result: FetchResult) -> list[bytes]:
    """Values that a client returns for one Fetch response."""
    aborted = sorted(result.aborted_transactions or (), key=lambda each: each.first_offset)
    left_out = set[int]()
    values: list[bytes] = []
    assert not isinstance(result.records, LogSlice)
    for header, batch in read_batches(memoryview(result.records)):
        while aborted and aborted[0].first_offset <= header.last_offset:
            left_out.add(aborted.pop(0).producer_id)
        if header.is_control:
            marker = read_marker(batch, header)
            if marker is not None and not marker.is_commit:
                left_out.discard(marker.producer_id)
        elif header.producer_id not in left_out:
            values += [record.value or b"" for record in iterate(batch, header)]
    return values


async def committed_offset(
    broker: Harness, group: str, topic: str, *, stable: bool = True, version: int = 7
) -> tuple[int, ErrorCode]:
    asked = [{"name": topic, "partition_indexes": [0]}]
    fields: dict[str, Any] = {"require_stable": stable, "group_id": group, "topics": asked}
    if version >= 8:
        fields = {
            "require_stable": stable,
            "groups": [{"group_id": group, "topics": asked, "member_id": None, "member_epoch": -1}],
        }
    answer = await broker.ask(OFFSET_FETCH, version, fields)
    topics: Sequence[Any] = answer.groups[0].topics if version >= 8 else answer.topics
    [partition] = topics[0].partitions
    return partition.committed_offset, ErrorCode(partition.error_code)
