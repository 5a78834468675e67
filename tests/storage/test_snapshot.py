"""Snapshots of leader epochs and producers."""

from __future__ import annotations

import pytest
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
        2**60: ProducerEntry(0, -1, (AppendedBatch(7, 7, 76, 76, -1),)),
    },
)


def test_a_snapshot_comes_back_with_its_order() -> None:
    decoded = Snapshot.decode(SNAPSHOT.encode())
    assert decoded == SNAPSHOT
    assert list(decoded.producers) == list(SNAPSHOT.producers)


def test_every_cut_is_noticed() -> None:
    content = SNAPSHOT.encode()
    for length in range(len(content)):
        with pytest.raises(StorageError):
            Snapshot.decode(content[:length])


def test_every_flipped_bit_is_noticed() -> None:
    content = SNAPSHOT.encode()
    for bit in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StorageError):
            Snapshot.decode(bytes(damaged))


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(StorageError):
        Snapshot.decode(content)
