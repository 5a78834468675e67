"""The clients of an indexed topic in a simulated cluster: they write, read and wait by key.

They use the gateway's own code: its routes, its sender with idempotency keys, its keyed reads. Partitions
are added and records deleted meanwhile; in the end every key is read from the start.
"""

from __future__ import annotations

from functools import partial

from penstock.config import Address
from penstock.errors import BrokerError, ProtocolError
from penstock.internal_client.errors import OutcomeUnknown
from penstock.internal_client.keyed_reads import KeyedRead, KeyedReads
from penstock.internal_client.producer import IdempotentProducer
from penstock.internal_client.routes import Routes
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.records.iteration import iterate, read_batches
from penstock.storage.keys.entries import IDEMPOTENCY_HEADER
from penstock.wire.fetch import FetchResult
from simulation.clients.cast import Cast
from simulation.clients.client import NoAnswer
from simulation.clients.fetched_records import read_records
from simulation.clients.retries import retried
from simulation.clients.whole_log import read_whole_log
from simulation.models.history import FILLING, InvariantViolated, ReadRecord
from simulation.models.keyed_model import Claim, KeyedModel
from simulation.models.partition_history import Place
from simulation.scenarios.broker_host import PORT
from simulation.scenarios.stage import CLIENT_HOST, Stage

_SHARE = 0.25
"""The share of seeds with an indexed topic."""
_TOPIC = "mail"
_KEYS = (b"ann", b"bob", b"", b"carl" * 20)
_MOST_PARTITIONS = 3
_SEND_SECONDS = 2.0
_READ_SECONDS = 2.0
_LATEST = -1
Places = list[Place]


class KeyedCast(Cast):
    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, "keyed", _SHARE)
        self._model = KeyedModel()
        self._places: Places = [(_TOPIC, index) for index in range(self._random.randint(1, 2))]

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"keyed"} if self.is_there else ())

    async def open(self) -> None:
        """Create the topic."""
        if not self.is_there:
            return
        copies = self._random.choice((3, 3, 2))
        configs = {
            "index.by.key": "true",
            "segment.bytes": str(self._random.choice((1_500, 5_000, 1_000_000))),
            "min.insync.replicas": str(self._random.choice((1, 2)) if copies > 2 else 1),
        }
        create = partial(self.create_topic, _TOPIC, len(self._places), configs, copies)
        await retried(create, "the indexed topic is not made")
        stage, model, places = self._stage, self._model, self._places
        self._actors = [
            MailWriter(stage, model, places, 0),
            MailWriter(stage, model, places, 1),
            MailWriter(stage, model, places, 2, has_own_keys=False),
            BatchWriter(stage, model, places),
            KeyReader(stage, model, places, 0),
            KeyReader(stage, model, places, 1),
            MailAdmin(stage, model, places),
        ]

    async def audit(self) -> None:
        """Read every key of every partition by the index, and compare it with the log."""
        if not self.is_there:
            return
        reader = KeyReader(self._stage, self._model, self._places, 99)
        for place in self._places:
            for key in _KEYS:
                await retried(partial(reader.read_all, place, key), f"{place}: {key!r} cannot be read")
            read = partial(read_whole_log, self._routing, place, partial(_decode, place))
            start, records = await retried(read, f"{place} cannot be read")
            self._model.check(place, start, records)


def _decode(place: Place, result: FetchResult, position: int) -> tuple[int, list[ReadRecord]]:
    found = read_records(str(place), result, position, compacted=False)
    return found.end, [record for record in found.records if record.offset >= position]


class GatewayConnections:
    """The connections of a gateway to the cluster."""

    def __init__(self, stage: Stage, name: str) -> None:
        network = stage.world.network.host(CLIENT_HOST)
        bootstrap = [Address(member.host.name, PORT) for member in stage.members]
        self.routes = Routes(network, bootstrap, name)
        self.sender = IdempotentProducer(self.routes, _SEND_SECONDS)
        self.reads = KeyedReads(network, self.routes, name)


class MailWriter:
    """Sends each message with one idempotency key until it knows that the message is stored; or each message once,
    without such a key, so that the sequences of the sender alone prevent duplicates.
    """

    def __init__(
        self, stage: Stage, model: KeyedModel, places: Places, number: int, *, has_own_keys: bool = True
    ) -> None:
        self.name = f"mail-writer-{number}"
        self._has_own_keys = has_own_keys
        self._stage, self._model, self._places = stage, model, places
        self._random = stage.world.random(self.name)
        self._connections = GatewayConnections(stage, self.name)
        self._sent = 0
        self._unknown: list[tuple[Place, NewRecord]] = []

    async def step(self) -> None:
        if self._unknown and self._random.random() < 0.7:
            place, record = self._unknown.pop(0)
        else:
            place, record = self._make()
        assert record.value is not None
        try:
            offset = await self._connections.sender.send(*place, record, is_alone=self._has_own_keys)
        except (OutcomeUnknown, BrokerError, OSError) as error:
            self._stage.note(self.name, "send", record.value, type(error).__name__, error)
            if self._has_own_keys:
                self._unknown.append((place, record))
            return
        self._stage.note(self.name, "send", record.value, offset)
        self._model.on_ack(record.value, offset)

    def _make(self) -> tuple[Place, NewRecord]:
        self._sent += 1
        place, key = self._random.choice(self._places), self._random.choice(_KEYS)
        value = f"{self.name} {self._sent}".encode() + FILLING + bytes(self._random.choice((0, 10, 300)))
        self._model.on_send(place, key, value)
        own_key = f"{self.name}/{self._sent}".encode()
        headers = ((IDEMPOTENCY_HEADER, own_key),) if self._has_own_keys else ()
        return place, NewRecord(key, value, self._stage.now_ms(), headers)


class BatchWriter:
    """Sends batches of several records, perhaps compressed, each once."""

    def __init__(self, stage: Stage, model: KeyedModel, places: Places) -> None:
        self.name = "mail-batches"
        self._stage, self._model, self._places = stage, model, places
        self._random = stage.world.random(self.name)
        self._routing = stage.routing(self.name)
        self._sent = 0

    async def step(self) -> None:
        place, records = self._random.choice(self._places), []
        leader, _ = await self._routing.leader(*place)
        for _ in range(self._random.choice((1, 3, 8))):
            self._sent += 1
            key, value = self._random.choice(_KEYS), f"{self.name} {self._sent}".encode() + FILLING
            self._model.on_send(place, key, value)
            records.append(NewRecord(key, value, self._stage.now_ms()))
        codec = self._random.choice((Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD))
        batch = bytes(build_batch(records, codec=codec))
        try:
            result = await leader.produce(*place, batch, -1, zstd=codec is Codec.ZSTD).result()
        except (BrokerError, NoAnswer):
            self._routing.mistrust(*place)
            raise
        assert result is not None
        for delta, record in enumerate(records):
            assert record.value is not None
            self._model.on_ack(record.value, result.base_offset + delta)
        self._stage.note(self.name, "produce", *place, result.base_offset, len(records))


class KeyReader:
    """Follows keys page by page, and waits for the next record."""

    def __init__(self, stage: Stage, model: KeyedModel, places: Places, number: int) -> None:
        self.name = f"key-reader-{number}"
        self._stage, self._model, self._places = stage, model, places
        self._random = stage.world.random(self.name)
        self._connections = GatewayConnections(stage, self.name)
        self._positions: dict[tuple[Place, bytes], int] = {}

    async def step(self) -> None:
        random = self._random
        place, key = random.choice(self._places), random.choice(_KEYS)
        position = self._positions.get((place, key), 0)
        wait_ms = random.choice((0, 0, 100, 1_000))
        max_records = random.choice((1, 3, 1_000))
        try:
            await self._read(place, key, position, max_records, wait_ms)
        except (BrokerError, OSError, ProtocolError) as error:
            self._stage.note(self.name, "read", *place, type(error).__name__, error)

    async def read_all(self, place: Place, key: bytes) -> None:
        """Read all records of a key from the start, and note each page as a claim."""
        position, is_complete = 0, False
        while not is_complete:
            try:
                position, is_complete = await self._read(place, key, position, 1_000, 0)
            except (OSError, ProtocolError) as error:
                raise NoAnswer(str(error)) from error

    async def _read(
        self, place: Place, key: bytes, position: int, max_records: int, wait_ms: int
    ) -> tuple[int, bool]:
        wanted = KeyedRead(*place, key, position, max_records, max_wait_ms=wait_ms)
        result = await self._connections.reads.read(wanted, _READ_SECONDS)
        shown = tuple(
            (record.offset, record.value or b"")
            for header, batch in read_batches(memoryview(result.records))
            for record in iterate(batch, header)
        )
        start = max(position, result.log_start_offset)
        self._stage.note(self.name, "read", *place, key, position, result.next_offset, len(shown))
        if result.next_offset < position:
            raise InvariantViolated("I5", f"{place}: asked from {position}, go on at {result.next_offset}")
        self._model.on_read(Claim(place, key, min(start, result.next_offset), result.next_offset, shown))
        self._positions[place, key] = result.next_offset
        return result.next_offset, result.is_complete


class MailAdmin:
    """Now and then adds a partition, or deletes the oldest records."""

    def __init__(self, stage: Stage, model: KeyedModel, places: Places) -> None:
        self.name = "mail-admin"
        self._stage, self._model, self._places = stage, model, places
        self._random = stage.world.random(self.name)
        self._routing = stage.routing(self.name)

    async def step(self) -> None:
        chance = self._random.random()
        if chance < 0.02 and len(self._places) < _MOST_PARTITIONS:
            await (await self._routing.any_broker()).create_partitions(_TOPIC, len(self._places) + 1)
            self._places.append((_TOPIC, len(self._places)))
            self._stage.note(self.name, "grow", len(self._places))
        elif chance < 0.06:
            await self._delete(self._random.choice(self._places))

    async def _delete(self, place: Place) -> None:
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
