"""The rules of one committed offset: every commit and deletion of it, and which of them a reader may be
shown.

A commit is identified by its metadata, which is unique. Events are numbered: a write that was acknowledged
before another one began comes before it. Raises InvariantViolated when a reader is shown a commit that was
overtaken by a write acknowledged before the request, a refused commit, or nothing where an offset is
committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from simulation.models.history import InvariantViolated, Outcome

NEVER = -1.0


@dataclass(slots=True, eq=False)
class OffsetWrite:
    """A commit, or a deletion (no offset); it takes effect, if at all, after `began` and before `ended`."""

    offset: int | None
    metadata: str
    began: float
    ended: float = inf
    outcome: Outcome = Outcome.PENDING

    def confirm(self, now: float) -> None:
        self.outcome = Outcome.OK
        self.ended = min(self.ended, now)

    def __str__(self) -> str:
        return f"{'a deletion' if self.offset is None else self.offset} by {self.metadata} ({self.outcome.value})"


@dataclass(frozen=True, slots=True)
class ShownOffset:
    offset: int
    metadata: str


class OffsetModel:
    """The committed offset of one partition in one group."""

    def __init__(self, name: str, deletions: list[OffsetWrite]) -> None:
        """`deletions` are those of the whole group; new ones are added to the list."""
        self.name = name
        self._deletions = deletions
        self._writes = [OffsetWrite(None, "nobody", NEVER, NEVER, Outcome.OK)]

    @property
    def is_certain(self) -> bool:
        """Whether an offset is certainly committed now."""
        return not self._candidates(None, inf)

    def begin(self, write: OffsetWrite) -> None:
        self._writes.append(write)

    def on_refusal(self, write: OffsetWrite) -> None:
        """Note that a write certainly did not happen."""
        if write.outcome is Outcome.OK:
            raise self._violation(f"{write} was refused but had been shown")
        write.outcome = Outcome.FAIL

    def on_read(self, shown: ShownOffset | None, began: float, now: float) -> None:
        """Check the response to a request that was sent at `began`."""
        candidates = self._candidates(shown, began)
        if not candidates:
            raise self._violation(f"{self._shown(shown)}; {self._newest(began)} was confirmed before")
        if shown is not None:
            candidates[0].confirm(now)

    def on_restart(self, now: float) -> None:
        """Note that requests in flight were lost with their connections: they have no effect any more."""
        for write in self._all():
            write.ended = min(write.ended, now)

    def on_loss(self, shown: ShownOffset | None, now: float) -> None:
        """Allow a loss: some earlier state is there, and everything starts from it."""
        if shown is None:
            self._writes = [OffsetWrite(None, "a loss", now, now, Outcome.OK)]
            return
        write = next(iter(self._matching(shown)), None)
        if write is None:
            raise self._violation(f"{self._shown(shown)}, which was never committed")
        write.began, write.ended, write.outcome = now, now, Outcome.OK
        self._writes = [write]

    def _candidates(self, shown: ShownOffset | None, began: float) -> list[OffsetWrite]:
        latest = self._latest_start(began)
        return [write for write in self._matching(shown) if write.ended >= latest]

    def _matching(self, shown: ShownOffset | None) -> list[OffsetWrite]:
        """Return the writes with this offset and metadata."""
        return [
            write
            for write in self._all()
            if write.outcome is not Outcome.FAIL
            and (
                write.offset is None
                if shown is None
                else (write.offset == shown.offset and write.metadata == shown.metadata)
            )
        ]

    def _latest_start(self, before: float) -> float:
        """Return the writes that were overtaken by an acknowledged one that began after their end."""
        confirmed = [
            write.began for write in self._all() if write.outcome is Outcome.OK and write.ended < before
        ]
        return max(confirmed, default=NEVER)

    def _newest(self, before: float) -> OffsetWrite:
        confirmed = [write for write in self._all() if write.outcome is Outcome.OK and write.ended < before]
        return max(confirmed, key=lambda write: write.began)

    def _all(self) -> list[OffsetWrite]:
        return self._writes + self._deletions

    def _shown(self, shown: ShownOffset | None) -> str:
        return "no offset" if shown is None else f"{shown.offset} by {shown.metadata}"

    def _violation(self, message: str) -> InvariantViolated:
        return InvariantViolated("I12", f"{self.name}: {message}")
