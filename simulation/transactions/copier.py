"""A simulated copier: it reads committed records, writes copies and commits its offsets in one transaction.

Every record that was read is copied once, by one of the copiers that share a group and a transactional id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulation.models.history import InvariantViolated, Outcome, label
from simulation.models.partition_history import Place
from simulation.models.transaction_model import ModelTransaction, TransactionModel
from simulation.scenarios.stage import Stage
from simulation.transactions.transaction_reader import Shown, read_from
from simulation.transactions.transactional_producer import Role, Strike, TransactionalProducer

_MAX_BYTES = (1, 600, 2_000)


class Copies:
    """The state that the copiers of one group and one transactional id share."""

    def __init__(self, group: str, source: Place) -> None:
        self.group = group
        self.source = source
        self.of: dict[bytes, bytes] = {}
        """The original of each copy, by value."""
        self.transactions: list[ModelTransaction] = []

    @property
    def certain_progress(self) -> int:
        done = (each.progress for each in self.transactions if each.outcome is Outcome.OK)
        return max((progress for progress in done if progress is not None), default=0)

    def check(self, progress: int, committed: Mapping[Place, Sequence[Shown]]) -> None:
        """Check that each record before the committed offset of the group is copied once, and no other
        record.
        """
        sources = [value for offset, value in committed[self.source] if offset < progress]
        copies = [
            self.of[value] for records in committed.values() for _, value in records if value in self.of
        ]
        if sorted(sources) != sorted(copies):
            missing = [label(value) for value in sources if value not in copies]
            extra = [label(value) for value in copies if value not in sources or copies.count(value) > 1]
            raise InvariantViolated(
                "I7", f"{self.group} is at {progress}; not copied: {missing}, copied too often: {extra}"
            )


class Copier(TransactionalProducer):
    def __init__(
        self,
        stage: Stage,
        model: TransactionModel,
        name: str,
        role: Role,
        places: Sequence[Place],
        strike: Strike,
        copies: Copies,
    ) -> None:
        super().__init__(stage, model, name, role, places, strike)
        self._copies = copies
        self._records: list[Shown] = []
        self._end_of_records = 0

    async def _is_ready(self) -> bool:
        end = await self.progress()
        self._records, position = [], -1
        while not self._records and end > position:  # aborted records are passed over
            position = end
            end, self._records = await read_from(
                self._routing,
                self._copies.source,
                position,
                self._random.choice(_MAX_BYTES),
                is_committed=True,
            )
        self._end_of_records = end
        for offset, value in self._records:
            self._model.on_committed(self._copies.source, offset, value)
        return bool(self._records)

    async def _fill(self, transaction: ModelTransaction) -> None:
        self._copies.transactions.append(transaction)
        for _, source in self._records:
            value = self._value(transaction, f" copy of {label(source)}")
            self._copies.of[value] = source
            await self._write(transaction, self._random.choice(self._places), [value])
        was_fenced, end = transaction.instance.is_fenced, self._end_of_records
        await self._tried(
            lambda: self._client.commit_offset(
                transaction.instance.producer, self._copies.group, self._copies.source, end, transaction.name
            )
        )
        self._model.on_progress(transaction, end, was_fenced=was_fenced)
        self._note("progress", transaction.name, end)

    async def progress(self) -> int:
        """Return the committed offset of the group."""
        least = self._copies.certain_progress
        shown = await self._client.committed_offset(self._copies.group, self._copies.source)
        self._note("offset", shown)
        self._model.on_offset(self._copies.group, shown, least)
        return 0 if shown is None else shown.offset
