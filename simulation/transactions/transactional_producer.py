"""A simulated transactional producer: it fills transactions, commits, aborts or leaves them, and repeats
requests.

Two producers with one transactional id fence each other again and again. Now and then an EndTxn arrives a
second time over an older connection when the next transaction has begun, as from a slow network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from penstock.cluster.internal_topics import TRANSACTIONS_TOPIC
from penstock.errors import BrokerError, ErrorCode
from penstock.records.building import NewRecord, build_batch
from simulation.clients.client import NoAnswer, SimulatedClient
from simulation.clients.routing_client import TRANSACTION
from simulation.models.history import FILLING, InvariantViolated
from simulation.models.partition_history import Place
from simulation.models.transaction_model import Instance, ModelTransaction, TransactionModel
from simulation.scenarios.stage import Stage
from simulation.transactions.transaction_client import Dialect, Producer, TransactionClient

_ATTEMPTS = 6
FENCED = frozenset({ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch})
_NOT_NOW = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)
_HOPELESS = FENCED | {
    ErrorCode.invalid_txn_state,
    ErrorCode.transaction_abortable,
    ErrorCode.invalid_producer_id_mapping,
    ErrorCode.illegal_generation,
    ErrorCode.unknown_member_id,
}
"""Errors after which a transaction can only be aborted."""

Strike = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Role:
    """The transactional id of a producer, its protocol version and its timeout."""

    transactional_id: str
    dialect: Dialect
    timeout_ms: int
    is_held: bool = False


@dataclass(frozen=True, slots=True)
class _Late:
    client: SimulatedClient
    producer: Producer
    commit: bool


class Failed(Exception):
    """The transaction can only be aborted."""


class TransactionalProducer:
    def __init__(
        self,
        stage: Stage,
        model: TransactionModel,
        name: str,
        role: Role,
        places: Sequence[Place],
        strike: Strike,
    ) -> None:
        """`strike` crashes a broker, if that is survivable."""
        self.name = name
        self.role = role
        self._stage = stage
        self._model = model
        self._places = places
        self._strike = strike
        self._random = stage.world.random(name)
        self._routing = stage.routing(name)
        self._client = TransactionClient(role.transactional_id, role.dialect, self._routing, self._random)
        self._outside = TransactionClient(
            role.transactional_id, role.dialect, stage.routing(f"{name}/outside"), self._random
        )
        self._instance: Instance | None = None
        self._instances = 0
        self._before: Producer | None = None
        """The producer id and epoch that it names when it asks for a new epoch."""
        self._sequences: dict[Place, int] = {}
        self._left: ModelTransaction | None = None
        """A held transaction, which another client is to end."""
        self._late: _Late | None = None
        self._eagerness = 1.0
        """The likelihood of InitProducerId in a step; a fenced producer lets the other one work."""
        self._sent = 0

    async def step(self) -> None:
        if self._left is not None:
            transaction, self._left = self._left, None
            await self._end(transaction, self._outside, commit=self._random.random() < 0.7)
        elif self._instance is None:
            if self._random.random() < self._eagerness:
                await self._initialise(is_held=self.role.is_held)
        else:
            await self._transact(self._instance)

    async def _initialise(self, *, is_held: bool) -> None:
        before = self._before
        try:
            producer = await self._client.initialise(self.role.timeout_ms, before, is_held=is_held)
        except BrokerError as error:
            if error.code in FENCED:
                self._before = None
            self._note("init", error.code.name)
            if is_held and error.code is ErrorCode.invalid_txn_state:
                await self._replace_holder()
                return
            if error.code not in FENCED | _NOT_NOW:
                raise InvariantViolated(
                    "T27", f"{self.name} got {error.code.name} for InitProducerId"
                ) from error
            return
        self._instances += 1
        self._eagerness = 1.0
        self._sequences, self._before = {}, None
        self._instance = self._model.on_producer(
            self.role.transactional_id, f"{self.name}.{self._instances}", producer
        )
        self._note("init", producer)

    async def _replace_holder(self) -> None:
        """Fence the holder of an open transaction now and then, by a producer that holds none and goes at
        once.
        """
        if self._random.random() < 0.3:
            await self._initialise(is_held=False)
            self._instance = None

    async def _is_ready(self) -> bool:
        """Whether there is anything to write."""
        return True

    async def _transact(self, instance: Instance) -> None:
        if not await self._is_ready():
            return
        transaction = self._model.begin(instance)
        try:
            await self._fill(transaction)
        except Failed as error:
            self._note("failed", transaction.name, error)
            await self._end(transaction, self._client, commit=False)
            if not self.role.dialect.is_implicit and self._instance is not None:
                # The sequences have gaps now: only a new epoch begins anew (KIP-360).
                self._before = instance.producer if self._random.random() < 0.7 else None
                self._instance = None
            return
        if self._random.random() < 0.1:
            self._leave(transaction)
            return
        await self._end(transaction, self._client, commit=self._random.random() < 0.75)

    def _leave(self, transaction: ModelTransaction) -> None:
        """Leave the transaction open, for its timeout, a successor or another client."""
        self._note("leave", transaction.name)
        if self.role.is_held:
            self._left = transaction
        else:
            self._instance = None

    # --- writing

    async def _fill(self, transaction: ModelTransaction) -> None:
        for place in self._random.sample(list(self._places), self._random.randint(1, len(self._places))):
            values = [self._value(transaction) for _ in range(self._random.randint(1, 3))]
            await self._write(transaction, place, values)
            await self._send_late()
            await asyncio.sleep(self._random.choice((0.0, 0.0, 0.02, 0.3)))

    async def _write(self, transaction: ModelTransaction, place: Place, values: Sequence[bytes]) -> None:
        """Send a batch for each value; Failed when one is not known to be stored."""
        instance = transaction.instance
        if not self.role.dialect.is_implicit:
            await self._tried(lambda: self._client.add_partitions(instance.producer, [place]))
        batches = {value: self._batch(instance.producer, place, value) for value in values}
        for value in values:
            self._sent += 1
            self._model.on_send(place, value, self._sent, transaction, self.name + instance.name)
        left = list(values)
        for _ in range(_ATTEMPTS):
            left = await self._attempt(place, left, batches)
            if not left:
                return
            await asyncio.sleep(self._random.choice((0.02, 0.2)))
        raise Failed("no answer")

    async def _attempt(
        self, place: Place, values: Sequence[bytes], batches: dict[bytes, bytes]
    ) -> list[bytes]:
        try:
            leader, _ = await self._routing.leader(*place)
        except NoAnswer:
            return list(values)
        sent = [(value, self._client.produce(leader, place, batches[value])) for value in values]
        left: list[bytes] = []
        hopeless: BrokerError | None = None
        for value, answer in sent:
            try:
                result = await answer.result()
            except NoAnswer:
                left.append(value)
            except BrokerError as error:
                self._note("produce", value.partition(FILLING)[0].decode(), error.code.name)
                hopeless = error if error.code in _HOPELESS else hopeless
                if error.code is ErrorCode.unknown_server_error:
                    raise InvariantViolated("T27", f"{self.name} got UNKNOWN_SERVER_ERROR") from error
                left.append(value)
            else:
                assert result is not None
                self._model.on_ack(value, result.base_offset)
        if left:
            self._routing.mistrust(*place)
        if hopeless is not None:
            raise Failed(hopeless.code.name)
        return left

    def _batch(self, producer: Producer, place: Place, value: bytes) -> bytes:
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + 1
        return bytes(
            build_batch(
                [NewRecord(None, value, self._stage.now_ms())],
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=sequence,
                transactional=True,
            )
        )

    def _value(self, transaction: ModelTransaction, what: str = "") -> bytes:
        filling = self._random.randbytes(self._random.choice((0, 10, 300)))
        return f"{transaction.name} {self._random.randrange(10**9)}{what}".encode() + FILLING + filling

    # --- ending

    async def _end(self, transaction: ModelTransaction, client: TransactionClient, *, commit: bool) -> None:
        instance, producer = transaction.instance, transaction.instance.producer
        late = await self._prepare_late(producer, commit=commit)
        if commit:
            self._model.on_commit_sent(transaction)
        is_clear = True
        for _ in range(_ATTEMPTS):
            try:
                await self._provoke()
                sent = self._stage.world.loop.time()
                successor = await client.end(producer, commit=commit)
            except NoAnswer:
                is_clear = False
            except BrokerError as error:
                self._note("end", transaction.name, commit, error.code.name)
                if error.code in _NOT_NOW:
                    is_clear = False  # it may have been recorded by a coordinator that was replaced then
                else:
                    self._on_refused_end(transaction, error, commit=commit, is_clear=is_clear)
                    return
            else:
                self._note("end", transaction.name, commit, "ok")
                if is_clear:  # an earlier attempt may have been recorded when more replicas were in sync
                    self._stage.check_internal(
                        TRANSACTIONS_TOPIC, self.role.transactional_id, sent, transaction
                    )
                self._model.on_end(transaction, commit=commit)
                if successor != producer:
                    self._sequences = {}
                self._model.on_next_producer(instance, successor)
                self._late = late
                return
            await asyncio.sleep(self._random.choice((0.02, 0.2)))
        self._note("end", transaction.name, commit, "unknown")
        self._instance = None

    def _on_refused_end(
        self, transaction: ModelTransaction, error: BrokerError, *, commit: bool, is_clear: bool
    ) -> None:
        self._instance, self._eagerness = None, 0.1
        if commit and error.code not in FENCED:
            raise InvariantViolated("T33", f"{transaction} got {error.code.name} for its commit") from error
        if is_clear or not commit:
            self._model.on_refusal(transaction)

    async def _provoke(self) -> None:
        """Crash the coordinator somewhere between the request and the last marker, now and then."""
        if self._random.random() < 0.1:
            node_id, _ = await self._routing.coordinator(self.role.transactional_id, TRANSACTION)
            seconds = self._random.choice((0.003, 0.01, 0.03)) * self._random.random()
            self._stage.world.loop.call_later(seconds, self._strike, node_id)

    async def _prepare_late(self, producer: Producer, *, commit: bool) -> _Late | None:
        """Open a newer connection for everything else; the EndTxn will arrive again over the older one."""
        if self._random.random() > 0.2:
            return None
        try:
            node_id, present = await self._routing.coordinator(self.role.transactional_id, TRANSACTION)
            older = self._stage.connection(f"{self.name}/late", node_id)
            await older.connect()
            present.disconnect()
            await present.connect()
        except (NoAnswer, BrokerError):
            return None
        return _Late(older, producer, commit)

    async def _send_late(self) -> None:
        late, self._late = self._late, None
        if late is not None and late.client.is_connected:  # a request on a closed connection never arrives
            self._note("late end", late.producer, late.commit)
            await self._client.end_late(late.client, late.producer, commit=late.commit)
            late.client.disconnect()

    # --- helpers

    async def _tried(self, act: Callable[[], Awaitable[None]]) -> None:
        for _ in range(_ATTEMPTS):
            try:
                await act()
            except NoAnswer:
                pass
            except BrokerError as error:
                if error.code in _HOPELESS:
                    raise Failed(error.code.name) from error
            else:
                return
            await asyncio.sleep(self._random.choice((0.02, 0.2)))
        raise Failed("no answer")

    def _note(self, what: str, *details: object) -> None:
        self._stage.note(self.name, what, *details)
