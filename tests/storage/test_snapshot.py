"""Snapshots of leader epochs and producers."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StorageError
from penstock.model import LeaderEpoch, Offset
from penstock.storage.leader_epochs import EpochEntry
from penstock.storage.producer_state import AppendedBatch, ProducerEntry
from penstock.storage.snapshot import Snapshot

SNAPSHOT = Snapshot(
    Offset(77),
    (EpochEntry(LeaderEpoch(1), Offset(0)), EpochEntry(LeaderEpoch(4), Offset(50))),
    {
        9: ProducerEntry(2, 123, (AppendedBatch(0, 3, 10, 13, 99), AppendedBatch(4, 4, 20, 20, 100))),
        11: ProducerEntry(2, 123, (AppendedBatch(6, 9, 30, 33, 99),), first_sequence=0),
        2**60: ProducerEntry(0, -1, (AppendedBatch(7, 7, 76, 76, -1),)),
    },
)


def test_snapshot_keeps_the_order_of_producers() -> None:
    decoded = Snapshot.decode(SNAPSHOT.encode())
    assert decoded == SNAPSHOT
    assert list(decoded.producers) == list(SNAPSHOT.producers)


def test_a_snapshot_without_first_sequences_is_read() -> None:
    """Version 2, as an earlier release wrote it."""
    entry = ProducerEntry(2, 123, (AppendedBatch(6, 9, 30, 33, 99),), 3, 30, 17)
    content = struct.pack("<4sHqIIII", b"PSNP", 2, 40, 0, 2, 0, 0)
    for producer_id in (9, 10):
        content += struct.pack("<qhqiqqB", producer_id, *entry[:2], *entry[3:6], 1)
        content += struct.pack("<iiqqq", *entry.batches[0])
    content += struct.pack("<I", crc32c(content))
    assert Snapshot.decode(content) == Snapshot(Offset(40), (), {9: entry, 10: entry})


def test_truncated_snapshot_is_detected() -> None:
    content = SNAPSHOT.encode()
    for length in range(len(content)):
        with pytest.raises(StorageError):
            Snapshot.decode(content[:length])


def test_every_flipped_bit_of_a_snapshot_is_detected() -> None:
    content = SNAPSHOT.encode()
    for bit in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StorageError):
            Snapshot.decode(bytes(damaged))


@given(st.binary(max_size=200))
def test_bytes_that_are_no_snapshot_are_refused(content: bytes) -> None:
    with pytest.raises(StorageError):
        Snapshot.decode(content)
