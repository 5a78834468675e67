"""The rules of transactions: all responses to clients, compared with the records that readers get.

A transaction counts as a whole or not at all, over partitions and offsets, and never before its commit was
requested. A fenced producer writes nothing more. Raises InvariantViolated at the first contradiction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from simulation.models.history import InvariantViolated, Outcome, label
from simulation.models.offset_model import ShownOffset
from simulation.models.partition_history import Place
from simulation.transactions.transaction_client import Producer


@dataclass(slots=True, eq=False)
class Instance:
    """A producer of a transactional id, from one InitProducerId to the next."""

    name: str
    transactional_id: str
    producer: Producer
    is_fenced: bool = False
    """Whether another producer is known to have taken over."""


@dataclass(slots=True, eq=False)
class ModelTransaction:
    name: str
    instance: Instance
    values: list[bytes] = field(default_factory=list)
    is_commit_sent: bool = False
    outcome: Outcome = Outcome.PENDING
    """The outcome: OK when it is committed, FAIL when it never will be."""
    progress: int | None = None
    """The offset of its group that the transaction commits."""

    def __str__(self) -> str:
        sent = "commit sent" if self.is_commit_sent else "commit not sent"
        return f"{self.name} ({self.outcome.value}, {sent})"


@dataclass(slots=True, eq=False)
class _Sent:
    place: Place
    order: int
    transaction: ModelTransaction | None
    is_late: bool
    """Whether the value was sent by a fenced producer."""
    is_acknowledged: bool = False
    lane: str = ""


class TransactionModel:
    def __init__(self) -> None:
        self._sent: dict[bytes, _Sent] = {}
        self._values: dict[tuple[Place, int], bytes] = {}
        self._offsets: dict[bytes, int] = {}
        self._instances: dict[str, list[Instance]] = {}
        self._given: dict[tuple[str, Producer], Instance] = {}
        self._transactions: dict[str, ModelTransaction] = {}

    @property
    def transactions(self) -> Sequence[ModelTransaction]:
        return list(self._transactions.values())

    # --- producers

    def on_producer(self, transactional_id: str, name: str, producer: Producer) -> Instance:
        """Note a response to InitProducerId: producers with an older epoch are fenced."""
        instance = Instance(name, transactional_id, producer)
        for other in self._instances.setdefault(transactional_id, []):
            if other.producer.producer_id != producer.producer_id:
                raise InvariantViolated("T35", f"{transactional_id} was {other.producer} and is {producer}")
            if other.producer.epoch < producer.epoch:
                self._fence(other)
            elif other.producer.epoch > producer.epoch:
                instance.is_fenced = True
        self._instances[transactional_id].append(instance)
        self._give(instance)
        return instance

    def on_next_producer(self, instance: Instance, producer: Producer) -> None:
        """Note the epoch that a producer got with the end of its transaction."""
        if producer != instance.producer:
            instance.producer = producer
            self._give(instance)

    def _give(self, instance: Instance) -> None:
        owner = self._given.setdefault((instance.transactional_id, instance.producer), instance)
        if owner is not instance:
            raise InvariantViolated(
                "T29",
                f"{instance.name} is {instance.producer} of {instance.transactional_id}, as {owner.name}",
            )

    def _fence(self, instance: Instance) -> None:
        instance.is_fenced = True
        for transaction in self._transactions.values():
            if transaction.instance is instance and not transaction.is_commit_sent:
                transaction.outcome = Outcome.FAIL

    # --- transactions

    def begin(self, instance: Instance) -> ModelTransaction:
        name = f"{instance.name}/{len(self._transactions)}"
        transaction = ModelTransaction(name, instance)
        if instance.is_fenced:
            transaction.outcome = Outcome.FAIL
        self._transactions[name] = transaction
        return transaction

    def on_send(
        self, place: Place, value: bytes, order: int, transaction: ModelTransaction | None, lane: str
    ) -> None:
        """Note the first request to commit."""
        is_late = transaction is not None and transaction.instance.is_fenced
        self._sent[value] = _Sent(place, order, transaction, is_late, lane=lane)
        if transaction is not None:
            transaction.values.append(value)

    def on_ack(self, value: bytes, offset: int) -> None:
        sent = self._sent[value]
        if sent.is_late:
            raise InvariantViolated("T29", f"{label(value)} was taken from a producer that was replaced")
        sent.is_acknowledged = True
        self._learn(sent.place, offset, value)

    def on_progress(self, transaction: ModelTransaction, offset: int, *, was_fenced: bool) -> None:
        """Note an offset that was accepted as part of the transaction."""
        if was_fenced:
            raise InvariantViolated(
                "T29", f"{transaction}: offsets of a producer that was replaced were taken"
            )
        transaction.progress = offset

    def on_commit_sent(self, transaction: ModelTransaction) -> None:
        if not transaction.instance.is_fenced:
            transaction.is_commit_sent = True

    def on_end(self, transaction: ModelTransaction, *, commit: bool) -> None:
        """Note a response to EndTxn."""
        if commit:
            if transaction.outcome is Outcome.FAIL:
                raise InvariantViolated("I7", f"{transaction} was told to be committed")
            transaction.outcome = Outcome.OK
        else:
            self.on_refusal(transaction)

    def on_refusal(self, transaction: ModelTransaction) -> None:
        """Note that the transaction is aborted, or was never more than open."""
        if transaction.outcome is Outcome.OK:
            raise InvariantViolated("I7", f"{transaction} was told to be aborted")
        transaction.outcome = Outcome.FAIL

    # --- readers

    def on_uncommitted(self, place: Place, offset: int, value: bytes) -> None:
        self._learn(place, offset, value)

    def on_committed(self, place: Place, offset: int, value: bytes) -> None:
        """Check a value that was shown to a reader of committed data."""
        self._learn(place, offset, value)
        transaction = self._sent[value].transaction
        if transaction is not None:
            self._on_effect(transaction, f"{label(value)} at {offset}")

    def on_offset(self, group: str, shown: ShownOffset | None, least: int) -> None:
        """Check a committed offset; `least` is the one that was committed when the request was sent."""
        offset = 0 if shown is None else shown.offset
        if shown is not None:
            transaction = self._transactions[shown.metadata]
            self._on_effect(transaction, f"offset {shown.offset} of {group}")
            if transaction.progress not in (None, shown.offset):
                raise InvariantViolated(
                    "I12", f"{group} is at {shown.offset}, {transaction} committed another"
                )
        if offset < least:
            raise InvariantViolated("I12", f"{group} is at {offset}, {least} was committed before")

    def _on_effect(self, transaction: ModelTransaction, what: str) -> None:
        """Note that a part of a transaction counts, so that all of it must."""
        if not transaction.is_commit_sent or transaction.outcome is Outcome.FAIL:
            raise InvariantViolated("I6", f"{what} was shown as committed: {transaction}")
        transaction.outcome = Outcome.OK

    def _learn(self, place: Place, offset: int, value: bytes) -> None:
        sent = self._sent.get(value)
        if sent is None or sent.place != place:
            raise InvariantViolated("I14", f"{label(value)} in {place} was never sent there")
        if sent.is_late:
            raise InvariantViolated("T29", f"{label(value)} is of a producer that was replaced")
        known = self._values.setdefault((place, offset), value)
        if known != value:
            raise InvariantViolated("I3", f"{place} {offset} was {label(known)} and is {label(value)}")
        if self._offsets.setdefault(value, offset) != offset:
            raise InvariantViolated(
                "I2", f"{label(value)} is at {self._offsets[value]} and again at {offset}"
            )

    # --- the audit

    def check_partition(
        self, place: Place, everything: Sequence[tuple[int, bytes]], committed: Sequence[tuple[int, bytes]]
    ) -> None:
        """Check a whole partition, as it is read in peace."""
        for offset, value in everything:
            self.on_uncommitted(place, offset, value)
        for offset, value in committed:
            self.on_committed(place, offset, value)
        stored = {value for _, value in everything}
        for value, sent in self._sent.items():
            if sent.place == place and sent.is_acknowledged and value not in stored:
                raise InvariantViolated("I1", f"{label(value)} was acknowledged and is gone")
        last: dict[str, int] = {}
        for _, value in everything:
            sent = self._sent[value]
            if sent.order < last.get(sent.lane, 0):
                raise InvariantViolated("I4", f"{label(value)} is out of the order {sent.lane} sent in")
            last[sent.lane] = sent.order
        shown = {value for _, value in committed}
        for value in stored:
            transaction = self._sent[value].transaction
            if transaction is None and value not in shown:
                raise InvariantViolated("I6", f"{label(value)} is in no transaction and is not shown")

    def check_atomic(self, committed: Mapping[Place, Sequence[tuple[int, bytes]]]) -> None:
        shown = {value for records in committed.values() for _, value in records}
        for transaction in self._transactions.values():
            parts = [value in shown for value in transaction.values]
            is_committed = any(parts) or transaction.outcome is Outcome.OK
            if is_committed and not all(parts):
                missing = transaction.values[parts.index(False)]
                raise InvariantViolated("I7", f"{transaction} is torn: {label(missing)} is not shown")
