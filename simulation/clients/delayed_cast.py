"""The clients of a topic with delayed messages in a simulated cluster: they send, cancel, read and delete.

In the end all clocks show the latest time, and every message must come.
"""

from __future__ import annotations

import asyncio
from functools import partial

from penstock.delay.headers import CANCEL, DELAY_MS, DELIVER_AT
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.errors import OutcomeUnknown
from penstock.records.batch import crc_matches
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.records.iteration import iterate, read_batches
from penstock.records.log_slice import LogSlice
from penstock.wire.fetch import FetchResult
from simulation.clients.cast import Cast
from simulation.clients.client import NoAnswer, SimulatedClient
from simulation.clients.keyed_cast import GatewayConnections
from simulation.clients.rack_reader import RACKS
from simulation.clients.retries import retried
from simulation.faults.cluster_traits import RETENTION
from simulation.models.delayed_model import DelayedModel, Fate
from simulation.models.history import FILLING, InvariantViolated
from simulation.models.partition_history import Place
from simulation.scenarios.stage import Stage
from simulation.transactions.transaction_client import VERSION_2, Producer, TransactionClient

_SHARE = 0.2
"""The share of seeds with delayed messages."""
_TOPIC = "reminders"
_DELAYS_MS = (0, 1, 50, 300, 1_500, 6_000)
_EARLIEST, _LATEST = -2, -1
_NO_BROKER = -1
_MAX_BYTES = 1_000_000
_PATIENCE_SECONDS = 60.0
_TRANSACTION_MS = 4_000
Places = list[Place]


class DelayedCast(Cast):
    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, "delayed", _SHARE)
        self._model = DelayedModel(lambda: max(member.host.clock.latest_ms for member in stage.members))
        self._places: Places = [(_TOPIC, index) for index in range(self._random.randint(1, 2))]

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"delayed"} if self.is_there else ())

    async def open(self) -> None:
        """Create the topic."""
        if not self.is_there:
            return
        copies = self._random.choice((3, 3, 2))
        configs = {
            "delivery.delay": "true",
            "segment.bytes": str(self._random.choice((1_500, 5_000, 1_000_000))),
            "min.insync.replicas": str(self._random.choice((1, 2)) if copies > 2 else 1),
        }
        if RETENTION in self._stage.traits:
            self._model.retention_ms = self._random.choice((1_000, 3_000))
            configs |= {"segment.bytes": "1500", "retention.ms": str(self._model.retention_ms)}
        create = partial(self.create_topic, _TOPIC, len(self._places), configs, copies)
        await retried(create, "the topic with delays is not made")
        stage, model, places = self._stage, self._model, self._places
        self._actors = [
            DelayWriter(stage, model, places),
            DelayedBatches(stage, model, places),
            DelayedTransactions(stage, model, places),
            Canceller(stage, model, places),
            DelayReader(stage, model, places, 0),
            DelayReader(stage, model, places, 1),
            DelayAdmin(stage, model, places),
        ]

    def look(self) -> None:
        """Note the time of all clocks."""
        self._model.look()

    async def audit(self) -> None:
        """Wait until every message has come, and read everything from the start."""
        if not self.is_there:
            return
        self._set_clocks()
        reader = DelayReader(self._stage, self._model, self._places, 99)
        loop = self._stage.world.loop
        deadline = loop.time() + _PATIENCE_SECONDS
        while True:
            self.look()
            for place in self._places:
                await retried(partial(reader.read_to_end, place), f"{place} cannot be read to its end")
            if not self._model.missing:
                return
            if loop.time() > deadline:
                lost = self._model.missing[0]
                raise InvariantViolated("delivered", f"{lost[:40]!r}: {self._model.messages[lost]}")
            await asyncio.sleep(0.3)

    def _set_clocks(self) -> None:
        """Set clocks that are behind to the latest time, as an operator would: messages are due by these clocks."""
        self.look()
        for member in self._stage.members:
            behind_ms = self._model.latest_ms - member.host.clock.now_ms()
            if behind_ms > 0:
                member.host.clock.jump(behind_ms)


class _Sender:
    """Places, values and headers of delays, for all senders."""

    def __init__(self, stage: Stage, model: DelayedModel, places: Places, name: str) -> None:
        self.name = name
        self._stage, self._model, self._places = stage, model, places
        self._random = stage.world.random(name)
        self._sent = 0

    def _make(self, place: Place) -> NewRecord:
        self._sent += 1
        value = f"{self.name} {self._sent}".encode() + FILLING + bytes(self._random.choice((0, 10, 300)))
        delay_ms, now_ms = self._random.choice(_DELAYS_MS), self._stage.now_ms()
        if self._random.random() < 0.5:
            self._model.on_send(place, value, delay_ms, None, now_ms)
            return NewRecord(b"k", value, now_ms, ((DELAY_MS, b"%d" % delay_ms),))
        self._model.on_send(place, value, delay_ms, now_ms + delay_ms, now_ms)
        return NewRecord(b"k", value, now_ms, ((DELIVER_AT, b"%d" % (now_ms + delay_ms)),))


class DelayWriter(_Sender):
    """Sends one message at a time, with the retries of an idempotent producer."""

    def __init__(self, stage: Stage, model: DelayedModel, places: Places) -> None:
        super().__init__(stage, model, places, "delay-writer")
        self._connections = GatewayConnections(stage, self.name)

    async def step(self) -> None:
        place = self._random.choice(self._places)
        record = self._make(place)
        assert record.value is not None
        try:
            offset = await self._connections.sender.send(*place, record)
        except (OutcomeUnknown, BrokerError, OSError) as error:
            self._stage.note(self.name, "send", record.value, type(error).__name__, error)
            return
        self._stage.note(self.name, "send", record.value, offset)
        self._model.on_end(record.value, Fate.STORED, offset)


class DelayedBatches(_Sender):
    """Sends batches of several messages, perhaps compressed, each once."""

    def __init__(self, stage: Stage, model: DelayedModel, places: Places) -> None:
        super().__init__(stage, model, places, "delay-batches")
        self._routing = stage.routing(self.name)

    async def step(self) -> None:
        place = self._random.choice(self._places)
        leader, _ = await self._routing.leader(*place)
        records = [self._make(place) for _ in range(self._random.choice((2, 3, 8)))]
        codec = self._random.choice((Codec.NONE, Codec.LZ4, Codec.ZSTD))
        try:
            batch = bytes(build_batch(records, codec=codec))
            result = await leader.produce(*place, batch, -1, zstd=codec is Codec.ZSTD).result()
        except (BrokerError, NoAnswer):
            self._routing.mistrust(*place)
            raise
        assert result is not None
        for delta, record in enumerate(records):
            assert record.value is not None
            self._model.on_end(record.value, Fate.STORED, result.base_offset + delta)
        self._stage.note(self.name, "produce", *place, result.base_offset, len(records))


class DelayedTransactions(_Sender):
    """Sends messages in transactions, and commits or aborts them; begins anew after any error."""

    def __init__(self, stage: Stage, model: DelayedModel, places: Places) -> None:
        super().__init__(stage, model, places, "delay-transactions")
        self._routing = stage.routing(self.name)
        self._client = TransactionClient(self.name, VERSION_2, self._routing, self._random)
        self._producer: Producer | None = None

    async def step(self) -> None:
        place = self._random.choice(self._places)
        producer, self._producer = self._producer, None
        if producer is None:
            producer = await self._client.initialise(_TRANSACTION_MS, None, is_held=False)
        record = self._make(place)
        assert record.value is not None
        batch = build_batch(
            [record],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            transactional=True,
        )
        is_commit = self._random.random() < 0.6
        try:
            leader, _ = await self._routing.leader(*place)
            result = await self._client.produce(leader, place, bytes(batch)).result()
            self._producer = await self._client.end(producer, commit=is_commit)
        except (BrokerError, NoAnswer):
            self._routing.mistrust(*place)
            raise
        assert result is not None
        self._stage.note(self.name, "end", *place, result.base_offset, is_commit)
        self._model.on_end(record.value, Fate.STORED if is_commit else Fate.ABORTED, result.base_offset)


class Canceller:
    """Cancels messages that may be pending."""

    def __init__(self, stage: Stage, model: DelayedModel, places: Places) -> None:
        self.name = "delay-canceller"
        self._stage, self._model = stage, model
        self._random = stage.world.random(self.name)
        self._connections = GatewayConnections(stage, self.name)

    async def step(self) -> None:
        wanted = [
            value
            for value, each in self._model.messages.items()
            if each.fate is Fate.STORED and each.offset is not None
        ][-20:]
        if not wanted or self._random.random() < 0.5:
            return
        value = self._random.choice(wanted)
        message = self._model.messages[value]
        record = NewRecord(None, None, self._stage.now_ms(), ((CANCEL, b"%d" % (message.offset or 0)),))
        message.fate = Fate.MAY_BE_CANCELLED
        try:
            await self._connections.sender.send(*message.place, record, is_alone=True)
        except (OutcomeUnknown, OSError) as error:
            self._stage.note(self.name, "cancel", value, type(error).__name__)
        except BrokerError as error:
            self._stage.note(self.name, "cancel", value, error)
            if error.code is ErrorCode.invalid_record:
                message.fate = (
                    Fate.STORED
                )  # it was not pending: it is delivered, or a deletion has removed it
        else:
            self._stage.note(self.name, "cancel", value)
            self._model.on_end(value, Fate.CANCELLED)


class DelayReader:
    """Follows partitions, and checks every record that it is shown."""

    def __init__(self, stage: Stage, model: DelayedModel, places: Places, number: int) -> None:
        self.name = f"delay-reader-{number}"
        self._stage, self._model, self._places = stage, model, places
        self._random = stage.world.random(self.name)
        self._routing = stage.routing(self.name)
        self._positions: dict[Place, int] = {}
        self._rack = self._random.choice(("", *RACKS))
        self._preferred: dict[Place, int] = {}
        """Follower that the leader named."""

    async def step(self) -> None:
        for place in self._places:
            await self._read(place, self._random.choice((0, 100)))

    async def read_to_end(self, place: Place) -> None:
        """Read from the start of the log to its end; each response must bring the reader further."""
        end, start = await self._offset(place, _LATEST), await self._offset(place, _EARLIEST)
        self._skip_to(place, start)
        while self._positions[place] < end:
            before = self._positions[place]
            await self._read(place, 0)
            if self._positions[place] <= before:
                raise InvariantViolated("reaches end", f"{place}: {before} of {end}")

    async def _leader(self, place: Place) -> tuple[SimulatedClient, int]:
        return await self._routing.leader(*place)

    async def _read(self, place: Place, wait_ms: int) -> None:
        position = self._positions.get(place, 0)
        try:
            leader, epoch = await self._leader(place)
            follower = self._preferred.pop(place, _NO_BROKER) if wait_ms else _NO_BROKER
            replica = leader if follower == _NO_BROKER else await self._routing.broker(follower)
            result = await replica.fetch(
                *place,
                position,
                max_bytes=_MAX_BYTES,
                max_wait_ms=wait_ms,
                leader_epoch=epoch,
                rack=self._rack if wait_ms else "",
            )
        except BrokerError as error:
            self._routing.mistrust(*place)
            if error.code is not ErrorCode.offset_out_of_range:
                raise
            await self._begin_again(place)
            return
        except NoAnswer:
            self._routing.mistrust(*place)
            raise
        if result.preferred_read_replica != _NO_BROKER:
            self._preferred[place] = result.preferred_read_replica
            return
        self._positions[place] = self._take(place, result, position)
        self._stage.note(self.name, "read", *place, position, self._positions[place])

    async def _offset(self, place: Place, timestamp: int) -> int:
        try:
            leader, epoch = await self._leader(place)
            return (await leader.list_offset(*place, timestamp, epoch)).offset
        except (BrokerError, NoAnswer):
            self._routing.mistrust(*place)
            raise

    async def _begin_again(self, place: Place) -> None:
        self._skip_to(place, await self._offset(place, _EARLIEST))

    def _skip_to(self, place: Place, start: int) -> None:
        """Continue at the start of the log, if it has moved over the position."""
        if start > self._positions.setdefault(place, 0):
            self._positions[place] = start
            self._model.on_skip(place)

    def _take(self, place: Place, result: FetchResult, position: int) -> int:
        assert not isinstance(result.records, LogSlice)
        for header, batch in read_batches(memoryview(result.records)):
            if not crc_matches(batch, header):
                raise InvariantViolated("I15", f"{place}: the CRC at {header.base_offset} is wrong")
            if header.last_offset >= result.high_watermark:
                raise InvariantViolated("I8", f"{place}: {header.last_offset} above {result.high_watermark}")
            if not header.base_offset <= position <= header.last_offset:
                raise InvariantViolated("I5", f"{place}: wanted {position}, got {header.base_offset}")
            if not header.is_control:
                for record in iterate(batch, header):
                    if record.offset >= position:
                        self._model.on_seen(place, record)
            position = header.next_offset
        return position


class DelayAdmin:
    """Now and then deletes the oldest records, pending ones too."""

    def __init__(self, stage: Stage, model: DelayedModel, places: Places) -> None:
        self.name = "delay-admin"
        self._stage, self._model, self._places = stage, model, places
        self._random = stage.world.random(self.name)
        self._routing = stage.routing(self.name)

    async def step(self) -> None:
        if self._random.random() > 0.02:
            return
        place = self._random.choice(self._places)
        try:
            leader, epoch = await self._routing.leader(*place)
            end = (await leader.list_offset(*place, _LATEST, epoch)).offset
            before = self._random.randint(0, end)
            self._model.deleted_before[place] = max(self._model.deleted_before[place], before)
            start = await leader.delete_records(*place, before)
        except (BrokerError, NoAnswer):
            self._routing.mistrust(*place)
            raise
        self._stage.note(self.name, "delete", *place, before, start)
