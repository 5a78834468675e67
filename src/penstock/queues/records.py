"""Records of `__share_group_state`: a snapshot of a share-partition, and the updates that follow it.

These are plain values, which `record_codec` encodes in Kafka's layout. An update extends the snapshot before it. A
tombstone with the key of the snapshot deletes the state.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from penstock.model import ShareKey
from penstock.queues.states import Letters, StateBatch


class SnapshotValue(NamedTuple):
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_timestamp_ms: int
    write_timestamp_ms: int
    batches: tuple[StateBatch, ...]
    letters: Letters | None = None


class UpdateValue(NamedTuple):
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    """New start offset; -1 leaves start offset and delivery-complete count unchanged."""
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    letters: Letters | None = None
    """Dead letters that are being written; None leaves them unchanged."""


StateValue: TypeAlias = SnapshotValue | UpdateValue


class StateRecord(NamedTuple):
    key: ShareKey
    value: StateValue | None
    """State of the share-partition; None deletes it."""
