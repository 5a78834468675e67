"""The expected result of reads by key: of a range of offsets all records of the key, in order, and no others.

Every read is kept as a claim about its range, and all claims are compared with the whole log in the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from simulation.models.history import InvariantViolated, ReadRecord, label
from simulation.models.partition_history import Place

Shown = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class Claim:
    """The records of a key in a range of offsets, as a broker has returned them."""

    place: Place
    key: bytes
    start: int
    end: int
    shown: tuple[Shown, ...]


class KeyedModel:
    def __init__(self) -> None:
        self.deleted_before: dict[Place, int] = defaultdict(int)
        """The log start offset is at most this."""
        self._keys: dict[bytes, tuple[Place, bytes]] = {}
        """The place of every value that was sent."""
        self._acknowledged: dict[bytes, int] = {}
        self._values: dict[tuple[Place, int], bytes] = {}
        self._claims: list[Claim] = []

    def on_send(self, place: Place, key: bytes, value: bytes) -> None:
        self._keys[value] = place, key

    def on_ack(self, value: bytes, offset: int) -> None:
        """Note that a message is stored at this offset and nowhere else, however often it was sent."""
        place, _ = self._keys[value]
        self._learn(place, offset, value)
        known = self._acknowledged.setdefault(value, offset)
        if known != offset:
            raise InvariantViolated("I2", f"{label(value)} is at {known} and at {offset}")

    def on_read(self, claim: Claim) -> None:
        position = claim.start
        for offset, value in claim.shown:
            if not position <= offset < claim.end:
                raise InvariantViolated("I5", f"{claim.place}: {offset} in {claim.start} to {claim.end}")
            if self._keys.get(value) != (claim.place, claim.key):
                raise InvariantViolated("I15", f"{claim.place}: {label(value)} is shown to {claim.key!r}")
            self._learn(claim.place, offset, value)
            position = offset + 1
        self._claims.append(claim)

    def check(self, place: Place, log_start: int, records: Sequence[ReadRecord]) -> None:
        """Compare a whole partition, read without the index, with all claims."""
        if log_start > self.deleted_before[place]:
            raise InvariantViolated("I1", f"{place} starts at {log_start}")
        places: dict[bytes, int] = {}
        for record in records:
            if self._keys.get(record.value) != (place, record.key):
                raise InvariantViolated("I15", f"{place}: {label(record.value)} was not sent")
            if record.value in places:
                raise InvariantViolated("I2", f"{place}: {label(record.value)} is there twice")
            self._learn(place, record.offset, record.value)
            places[record.value] = record.offset
        for value, offset in self._acknowledged.items():
            is_kept = self._keys[value][0] == place and offset >= self.deleted_before[place]
            if is_kept and places.get(value) != offset:
                raise InvariantViolated("I1", f"{place}: {label(value)} is not at {offset}")
        for claim in self._claims:
            if claim.place == place:
                self._check_claim(claim, log_start, records)

    def _check_claim(self, claim: Claim, log_start: int, records: Sequence[ReadRecord]) -> None:
        start = max(claim.start, log_start)
        there = [
            (record.offset, record.value)
            for record in records
            if record.key == claim.key and start <= record.offset < claim.end
        ]
        shown = [each for each in claim.shown if each[0] >= start]
        if there != shown:
            wrong = next(iter(sorted(set(there) ^ set(shown))), None)
            raise InvariantViolated(
                "I5", f"{claim.place}: {claim.key!r} from {claim.start} to {claim.end}: {wrong}"
            )

    def _learn(self, place: Place, offset: int, value: bytes) -> None:
        known = self._values.setdefault((place, offset), value)
        if known != value:
            raise InvariantViolated(
                "I3", f"{place}: {offset} is {label(known)} to some and {label(value)} to others"
            )
