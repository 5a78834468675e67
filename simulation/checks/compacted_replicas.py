"""Comparison of two replicas of a compacted partition: each was compacted at other times, so their bytes may
differ.

Where both have a record it is the same, and a record that only one has is outdated in the other by a newer
record of its key. Tombstones may be removed after a time, so their keys prove nothing. Of batches in
transactions only the common records are compared, because aborted records are removed too.
"""

from __future__ import annotations

from penstock.records.iteration import iterate, read_batches
from simulation.models.history import InvariantViolated

_Record = tuple[bytes | None, bytes | None, int]


def check_compacted(name: str, one: bytes, other: bytes) -> None:
    first, second = _Contents(one), _Contents(other)
    for offset in first.records.keys() & second.records.keys():
        if first.records[offset] != second.records[offset]:
            raise InvariantViolated("I9", f"{name}: copies have different records at {offset}")
    for content, peer in ((first, second), (second, first)):
        for offset, key in content.settled.items():
            if offset not in peer.records and peer.newest.get(key, -1) < offset:
                raise InvariantViolated(
                    "I9", f"{name}: {offset} is in one copy, nothing newer of its key in the other"
                )


class _Contents:
    def __init__(self, batches: bytes) -> None:
        self.records: dict[int, _Record] = {}
        self.newest: dict[bytes | None, int] = {}
        self.settled: dict[int, bytes | None] = {}
        """Return the keys of records that only a newer record of the key may outdate."""
        for header, batch in read_batches(memoryview(batches)):
            if header.is_control:
                continue
            for record in iterate(batch, header):
                self.records[record.offset] = (record.key, record.value, record.timestamp)
                self.newest[record.key] = record.offset
                if record.value is not None and not header.is_transactional:
                    self.settled[record.offset] = record.key
        tombstones = {key for key, value, _ in self.records.values() if value is None}
        self.settled = {offset: key for offset, key in self.settled.items() if key not in tombstones}
