"""A simulated producer that works as librdkafka: several batches of several partitions in flight on each connection.

It sends failed batches again, in order, until they are acknowledged. OUT_OF_ORDER_SEQUENCE_NUMBER would make librdkafka
take a new epoch and send the unacknowledged batches of all partitions again, so that a batch that was stored without
a response is stored twice: a broker must not return that error to a producer that keeps the order. It sends to a new
leader while batches are in flight to the former one. Now and then it takes a new epoch while nothing is in flight.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from penstock.errors import BrokerError, ErrorCode
from penstock.records.building import NewRecord, build_batch
from simulation.clients.client import NoAnswer, SentBatch, SimulatedClient
from simulation.models.history import FILLING, InvariantViolated, Write
from simulation.models.topic_model import TopicModel, TopicState
from simulation.scenarios.stage import Stage

_IN_FLIGHT = 5
"""Batches of a partition in flight, as many as a broker remembers of a producer."""
_PLACES = 4
_PAUSES_SECONDS = (0.0, 0.0, 0.002, 0.01)
"""Pauses between batches of a partition, in which its leader may change."""
_NOT_NOW = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.kafka_storage_error,
        ErrorCode.request_timed_out,
        ErrorCode.unknown_topic_or_partition,
    }
)
"""Errors after which a batch is sent again unchanged."""

_NEW_EPOCH_SHARE = 0.1
"""The likelihood of a new epoch in a step that begins with nothing in flight."""

Place = tuple[TopicModel, int]


@dataclass(slots=True, eq=False)
class _Batch:
    write: Write
    records: tuple[NewRecord, ...]
    sequence: int


class PipelinedProducer:
    def __init__(self, stage: Stage, number: int) -> None:
        self.name = f"pipeliner-{number}"
        self._stage = stage
        self._random = stage.world.random(self.name)
        self._routing = stage.routing(self.name)
        self._identity: tuple[int, int] | None = None
        """Producer id and epoch."""
        self._pending: dict[Place, list[_Batch]] = {}
        """The unacknowledged batches of each partition, in the order in which they were first sent."""
        self._sequences: dict[Place, int] = {}
        self._sent = 0

    async def step(self) -> None:
        self._forget_deleted()
        is_idle = not any(self._pending.values())
        if self._identity is None or (is_idle and self._random.random() < _NEW_EPOCH_SHARE):
            await self._take_epoch(self._identity or (-1, -1))
        self._fill()
        await self._send()

    async def _take_epoch(self, before: tuple[int, int]) -> None:
        """Take a new identity, with sequences from 0 in all partitions."""
        self._identity = await (await self._routing.any_broker()).init_producer_id(before)
        self._sequences.clear()
        self._stage.note(self.name, "epoch", *self._identity)

    def _take_sequence(self, place: Place, count: int) -> int:
        first = self._sequences.get(place, 0)
        self._sequences[place] = first + count
        return first

    def _forget_deleted(self) -> None:
        for place in [place for place in self._pending if place[0].state is not TopicState.ALIVE]:
            for batch in self._pending.pop(place):
                place[0].partitions[place[1]].on_unknown(batch.write)

    # --- sending

    def _fill(self) -> None:
        for _ in range(self._random.randint(1, _PLACES)):
            place = self._stage.choose_partition(self._random)
            if place is not None:
                batches = self._pending.setdefault(place, [])
                for _ in range(self._random.randint(1, 3)):
                    if len(batches) < _IN_FLIGHT:
                        batches.append(self._make(*place))

    def _make(self, topic: TopicModel, partition: int) -> _Batch:
        values = tuple(self._value(topic, partition) for _ in range(self._random.choice((1, 1, 2))))
        now_ms = self._stage.now_ms()
        records = tuple(NewRecord(b"key", value, now_ms) for value in values)
        write = Write(
            values,
            (b"key",) * len(values),
            (now_ms,) * len(values),
            self.name,
            self._sent,
            -1,
            topic.weak_changes,
        )
        topic.partitions[partition].on_send(write)
        return _Batch(write, records, self._take_sequence((topic, partition), len(values)))

    def _value(self, topic: TopicModel, partition: int) -> bytes:
        self._sent += 1
        name = f"{topic.name}#{topic.incarnation}-{partition} {self.name} {self._sent}"
        return name.encode() + FILLING + self._random.randbytes(self._random.choice((0, 10, 300)))

    async def _send(self) -> None:
        """Send everything that is pending, interleaved over the partitions, then wait for all responses."""
        began = self._stage.world.loop.time()
        leaders: dict[Place, tuple[SimulatedClient, int]] = {}
        for place in self._random.sample(list(self._pending), len(self._pending)):
            try:
                leaders[place] = await self._routing.leader(place[0].name, place[1])
            except (NoAnswer, BrokerError):
                self._routing.mistrust(place[0].name, place[1])
        assert self._identity is not None
        sent: list[tuple[Place, _Batch, SentBatch]] = []
        for turn in range(_IN_FLIGHT):
            await asyncio.sleep(self._random.choice(_PAUSES_SECONDS))
            await self._follow_leaders(leaders)
            for place, (leader, _) in leaders.items():
                if turn < len(self._pending[place]) and leader.is_connected:
                    batch = self._pending[place][turn]
                    content = build_batch(
                        list(batch.records),
                        producer_id=self._identity[0],
                        producer_epoch=self._identity[1],
                        base_sequence=batch.sequence,
                    )
                    answer = leader.produce(place[0].name, place[1], bytes(content), -1, zstd=False)
                    sent.append((place, batch, answer))
        for place, batch, answer in sent:
            await self._settle(place, batch, answer, began)

    async def _follow_leaders(self, leaders: dict[Place, tuple[SimulatedClient, int]]) -> None:
        """Turn to new leaders while batches are in flight to the former ones, as librdkafka does."""
        for place, (_, epoch) in tuple(leaders.items()):
            name, partition = place[0].name, place[1]
            if (self._stage.leader_epoch(name, partition) or 0) > epoch >= 0:
                self._routing.mistrust(name, partition)
                with suppress(NoAnswer, BrokerError):
                    leaders[place] = await self._routing.leader(name, partition)

    async def _settle(self, place: Place, batch: _Batch, answer: SentBatch, began: float) -> None:
        topic, partition = place
        try:
            result = await answer.result()
        except NoAnswer:
            self._note(place, batch, "no answer")
            self._routing.mistrust(topic.name, partition)
            return
        except BrokerError as error:
            self._note(place, batch, error.code.name)
            self._routing.mistrust(topic.name, partition)
            if error.code is ErrorCode.out_of_order_sequence_number:
                raise InvariantViolated("sequence", f"{batch.write} got {error.code.name}") from error
            if error.code not in _NOT_NOW and topic.state is TopicState.ALIVE:
                raise InvariantViolated("T27", f"{batch.write} got {error.code.name}") from error
            return
        assert result is not None
        self._note(place, batch, "ok", result.base_offset)
        self._pending[place].remove(batch)
        topic.on_ack(partition, batch.write, result.base_offset)
        if topic.state is TopicState.ALIVE:
            self._stage.check_in_sync((topic.name, partition), topic.min_insync_replicas, began, batch.write)

    def _note(self, place: Place, batch: _Batch, *outcome: object) -> None:
        name = place[0].partitions[place[1]].name
        self._stage.note(self.name, "produce", name, batch.write.order, batch.sequence, *outcome)
