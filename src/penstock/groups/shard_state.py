"""The groups and offsets of a shard, as its log has them. `apply` changes them by one record. `loading`
replays the log with it, and `shard` continues from the result.
"""

from __future__ import annotations

from typing import cast

from penstock.groups.context import GroupContext
from penstock.groups.offsets import Offsets
from penstock.groups.records import GroupRecord, OffsetKey, OffsetValue
from penstock.groups.shard_groups import ShardGroups
from penstock.records.control import Marker
from penstock.state_log.replaying import InTransaction


class ShardState:
    def __init__(self, context: GroupContext) -> None:
        self.groups = ShardGroups(context)
        self.offsets = Offsets()

    def apply(self, record: GroupRecord) -> None:
        if isinstance(record.key, OffsetKey):
            self.offsets.apply(record.key, cast("OffsetValue | None", record.value))
        else:
            self.groups.apply(record)

    def apply_transactional(self, step: InTransaction[GroupRecord] | Marker) -> None:
        if isinstance(step, Marker):
            self.offsets.end_transaction(step.producer_id, is_commit=step.is_commit)
            return
        key, value = step.record.key, step.record.value
        if isinstance(key, OffsetKey) and value is not None:
            self.offsets.transactional.add(step.producer_id, key, cast(OffsetValue, value))
