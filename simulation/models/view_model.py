"""The expected content of views: of a range of offsets all matching records of the source, in order, and no others.

Every response is kept as a claim about its range and compared with the whole source in the end. A response shows the
records of one filter; while a filter is changed, that may be any filter so far, and in the end it is the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock.records.iteration import Record
from simulation.models.history import InvariantViolated, label
from simulation.models.partition_history import Place

Shown = tuple[int, bytes]
FILTERS: Mapping[str, Callable[[Record], bool]] = {
    'headers.region == "eu"': lambda record: dict(record.headers).get("region") == b"eu",
    'headers.region != "eu"': lambda record: dict(record.headers).get("region", b"eu") != b"eu",
    'key.endsWith("3")': lambda record: (record.key or b"").endswith(b"3"),
    'key == "nobody"': lambda record: record.key == b"nobody",
    "offset % 4 < 2": lambda record: record.offset % 4 < 2,
}
"""Filters, and what they mean. The evaluation fails on a record without the header: it does not match."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The records of a view in a range of offsets, as a broker has returned them."""

    view: str
    place: Place
    """Place of the source."""
    start: int
    end: int
    shown: tuple[Shown, ...]
    filters: tuple[str, ...]
    """Filters that the view may have had when the response was made."""


class ViewModel:
    def __init__(self, *, may_lose: bool) -> None:
        """`may_lose`: compaction removes records of the source."""
        self._may_lose = may_lose
        self._claims: list[Claim] = []

    def on_read(self, claim: Claim) -> None:
        position = claim.start
        for offset, value in claim.shown:
            if not position <= offset < claim.end:
                raise InvariantViolated(
                    "view", f"{claim.view}: {offset} {label(value)} in {claim.start} to {claim.end}"
                )
            position = offset + 1
        self._claims.append(claim)

    def check(self, place: Place, log_start: int, records: Sequence[Record]) -> None:
        """Compare all claims about a partition with the records that its source has."""
        for claim in self._claims:
            if claim.place == place:
                self.check_claim(claim, log_start, records)

    def check_claim(self, claim: Claim, log_start: int, records: Sequence[Record]) -> None:
        start = max(claim.start, log_start)
        there = [record for record in records if start <= record.offset < claim.end]
        shown = [each for each in claim.shown if each[0] >= start]
        replaced = self._replaced(records)
        wrong = [self._difference(FILTERS[text], shown, there, replaced) for text in claim.filters]
        if all(wrong):
            raise InvariantViolated(
                "view",
                f"{claim.view} of {claim.place} from {claim.start} to {claim.end}: {wrong[-1]} with {claim.filters}",
            )

    def _replaced(self, records: Sequence[Record]) -> set[int]:
        """Offsets of records with a later record of their key, which each replica compacts in its own time.

        The replica that made a response may have removed a record that another still has.
        """
        if not self._may_lose:
            return set()
        last = {record.key: record.offset for record in records}
        return {record.offset for record in records if record.offset < last[record.key]}

    def _difference(
        self,
        matches: Callable[[Record], bool],
        shown: Sequence[Shown],
        there: Sequence[Record],
        replaced: set[int],
    ) -> str:
        """Difference between a response and the records of this filter; empty if there is none."""
        wanted = [(record.offset, record.value or b"") for record in there if matches(record)]
        if self._may_lose:
            offsets = {record.offset for record in there}
            shown = [each for each in shown if each[0] in offsets]  # compacted away since
            offsets_shown = {each[0] for each in shown}
            wanted = [each for each in wanted if each[0] not in replaced or each[0] in offsets_shown]
        kept = set(wanted)
        if list(shown) == wanted:
            return ""
        missing, surplus = kept - set(shown), set(shown) - kept
        return f"missing {_labels(missing)}, not wanted {_labels(surplus)}"


def _labels(shown: set[Shown]) -> list[str]:
    return [f"{offset} {label(value)}" for offset, value in sorted(shown)[:3]]
