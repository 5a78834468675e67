"""A simulated producer: random batches to random partitions, pipelined, idempotent with retries or plain. It
sends to the leader that it knows, and looks up the leader after an error.

An idempotent session retries until it knows the outcome, or gives up and begins a new session. A plain
producer sends no value twice. So every value is stored at most once.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import BrokerError, ErrorCode
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from simulation.clients.client import PRODUCE_TIMEOUT_MS, NoAnswer, SentBatch, SimulatedClient
from simulation.models.history import FILLING, InvariantViolated, Outcome, Write
from simulation.models.partition_model import View
from simulation.models.topic_model import TopicModel, TopicState
from simulation.scenarios.stage import Stage

ACKS = (-1, -1, -1, 1, 0)
_ATTEMPTS = 4
_IN_FLIGHT = 4
_KEYS = (b"red", b"green", b"blue", b"white", b"black")
_UNDECIDED = frozenset(
    {
        ErrorCode.kafka_storage_error,
        ErrorCode.request_timed_out,
        ErrorCode.not_leader_or_follower,
        ErrorCode.not_enough_replicas_after_append,
    }
)
"""Errors after which the batch may be in the log nevertheless."""


@dataclass(slots=True)
class _Session:
    """The identity of an idempotent producer and its next sequence number in each partition."""

    producer_id: int
    epoch: int
    sequences: dict[tuple[str, int], int]

    def take_sequence(self, topic: TopicModel, partition: int, count: int) -> int:
        key = (f"{topic.name}#{topic.incarnation}", partition)
        first = self.sequences.get(key, 0)
        self.sequences[key] = first + count
        return first


@dataclass(slots=True, eq=False)
class Batch:
    write: Write
    content: bytes
    acks: int
    zstd: bool
    tried: bool = False
    sent_at: float = 0.0
    """The virtual time when the batch was sent last."""


class Producer:
    def __init__(self, stage: Stage, number: int) -> None:
        self.name = f"producer-{number}"
        self._stage = stage
        self._random = stage.world.random(self.name)
        self._routing = stage.routing(self.name)
        self._is_idempotent = self._random.random() < 0.6
        self._session: _Session | None = None
        self._sent = 0

    async def step(self) -> None:
        chosen = self._stage.choose_partition(self._random)
        if chosen is None:
            return
        topic, partition = chosen
        if self._is_idempotent and self._session is None:
            broker = await self._routing.any_broker()
            self._session = _Session(*await broker.init_producer_id(), sequences={})
        await self._leader(topic, partition)
        if topic.state is not TopicState.ALIVE:
            return
        acks = -1 if self._session is not None else self._random.choice(ACKS)
        batches = [self._make(topic, partition, acks) for _ in range(self._random.randint(1, _IN_FLIGHT))]
        await self._deliver(topic, partition, batches)

    async def prove_alive(self, topic: TopicModel, partition: int) -> None:
        """Send one durable write, which has to succeed."""
        await self._leader(topic, partition)
        batch = self._make(topic, partition, acks=-1)
        await self._deliver(topic, partition, [batch])
        if batch.write.outcome is not Outcome.OK:
            raise InvariantViolated("liveness", f"{batch.write} was not taken in peace")

    async def _deliver(self, topic: TopicModel, partition: int, batches: list[Batch]) -> None:
        began, writes = self._stage.world.loop.time(), [batch.write for batch in batches]
        for _ in range(_ATTEMPTS if self._session is not None else 1):
            batches = await self._attempt(topic, partition, batches)
            if not batches or topic.state is not TopicState.ALIVE:
                break
        for batch in batches:
            topic.partitions[partition].on_unknown(batch.write)
        if batches:
            self._session = None
        is_committed = any(write.acks == -1 and write.outcome is Outcome.OK for write in writes)
        if is_committed and topic.state is TopicState.ALIVE:
            self._stage.check_in_sync((topic.name, partition), topic.min_insync_replicas, began, writes[0])

    async def _attempt(self, topic: TopicModel, partition: int, batches: list[Batch]) -> list[Batch]:
        """Send all batches in order; return those whose outcome is unknown."""
        try:
            leader = await self._leader(topic, partition)
        except NoAnswer:
            return batches
        view = topic.partitions[partition].view()
        sent: list[tuple[Batch, SentBatch]] = []
        for batch in batches:
            sent.append((batch, self._send(leader, topic, partition, batch)))
        return [
            batch for batch, answer in sent if not await self._settle(topic, partition, view, batch, answer)
        ]

    async def _leader(self, topic: TopicModel, partition: int) -> SimulatedClient:
        client, _ = await self._routing.leader(topic.name, partition)
        return client

    def _send(self, leader: SimulatedClient, topic: TopicModel, partition: int, batch: Batch) -> SentBatch:
        if not batch.tried:
            if self._session is None:
                batch.write.lane = f"{leader.name}/{leader.connections}"
            topic.partitions[partition].on_send(batch.write)
        batch.sent_at = self._stage.world.loop.time()
        return leader.produce(topic.name, partition, batch.content, batch.acks, zstd=batch.zstd)

    async def _settle(
        self, topic: TopicModel, partition: int, view: View, batch: Batch, answer: SentBatch
    ) -> bool:
        """Wait for one response and tell the model; False when the outcome is unknown."""
        tried, batch.tried = batch.tried, True
        try:
            result = await answer.result()
        except NoAnswer:
            self._note(batch, "no answer")
            self._routing.mistrust(topic.name, partition)
            return False
        except BrokerError as error:
            self._note(batch, error.code.name)
            self._routing.mistrust(topic.name, partition)
            if error.code is ErrorCode.unknown_server_error:
                raise InvariantViolated("T27", f"{batch.write} got UNKNOWN_SERVER_ERROR") from error
            if tried or error.code in _UNDECIDED or error.code is ErrorCode.out_of_order_sequence_number:
                return False
            topic.partitions[partition].on_refusal(batch.write)
            self._session = None
            return True
        if result is None:
            topic.partitions[partition].on_unknown(batch.write)
            return True
        self._note(batch, "ok", result.base_offset)
        topic.on_ack(partition, batch.write, result.base_offset)
        if batch.acks == 1 and self._stage.world.loop.time() - batch.sent_at < PRODUCE_TIMEOUT_MS / 1000:
            self._check_readable(topic, partition, result.base_offset)
        if result.log_start_offset >= 0:
            topic.partitions[partition].on_log_start(view, result.log_start_offset)
        return True

    def _check_readable(self, topic: TopicModel, partition: int, offset: int) -> None:
        """Check the high watermark after a timely acknowledgement with acks=1 by the only replica: the record
        can be read. One of several replicas responds before the others have the record.
        """
        shown = [member.high_watermark(topic.name, partition) for member in self._stage.members]
        high_watermark = max((each for each in shown if each is not None), default=None)
        if topic.is_replicated or topic.state is not TopicState.ALIVE or high_watermark is None:
            return
        if high_watermark <= offset:
            raise InvariantViolated(
                "own write",
                f"{topic.name}-{partition}: {offset} is acknowledged, the high watermark is {high_watermark}",
            )

    def _make(self, topic: TopicModel, partition: int, acks: int) -> Batch:
        count = self._random.choice((1, 1, 2, 5))
        values = tuple(self._value(topic, partition) for _ in range(count))
        now_ms = self._stage.now_ms()
        timestamps = tuple(now_ms - self._random.randrange(10_000) for _ in range(count))
        codec = self._random.choice((Codec.NONE, Codec.NONE, *Codec))
        keys = tuple(self._random.choice(_KEYS) for _ in range(count))
        records = [NewRecord(*record) for record in zip(keys, values, timestamps, strict=True)]
        lane, content = self.name, build_batch(records, codec=codec)
        if (session := self._session) is not None:
            lane = f"{self.name}/producer {session.producer_id}"
            content = build_batch(
                records,
                codec=codec,
                producer_id=session.producer_id,
                producer_epoch=session.epoch,
                base_sequence=session.take_sequence(topic, partition, count),
            )
        sent_times = () if topic.has_append_time else timestamps
        write = Write(values, keys, sent_times, lane, self._sent, acks, topic.weak_changes)
        return Batch(write, bytes(content), acks, zstd=codec is Codec.ZSTD)

    def _value(self, topic: TopicModel, partition: int) -> bytes:
        self._sent += 1
        name = f"{topic.name}#{topic.incarnation}-{partition} {self.name} {self._sent}"
        return name.encode() + FILLING + self._random.randbytes(self._random.choice((0, 10, 100, 700)))

    def _note(self, batch: Batch, *outcome: object) -> None:
        self._stage.note(self.name, "produce", batch.write.order, *outcome)
