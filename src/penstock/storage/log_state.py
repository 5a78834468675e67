"""State from which a log is made: the context that all logs of a data directory share, and its own initial state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.model import NO_LEADER_EPOCH, LeaderEpoch, Offset
from penstock.storage.checkpoints import RecoveryMark
from penstock.storage.closed_segments import ClosedSegments
from penstock.storage.damage import NO_DAMAGE, Damage
from penstock.storage.disk import Disk
from penstock.storage.file_cache import FileCache
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.producer_state import ProducerStates
from penstock.storage.segment import Segment

if TYPE_CHECKING:
    from penstock.storage.log import Log


@dataclass(slots=True)
class StorageContext:
    """Context shared by the logs of a data directory."""

    disk: Disk
    files: FileCache
    full: bool = False
    """True if free disk space is below the limit: appends are refused, reads are served."""
    unsound: dict[Log, None] = field(default_factory=dict)
    """Logs that have failed or are damaged, collected so that the maintenance need not look at all logs."""


_START = Offset(0)


@dataclass(slots=True)
class LogState:
    """Initial state of a new or recovered log."""

    segments: tuple[Segment, ...] = ()
    log_start_offset: Offset = _START
    log_end_offset: Offset = _START
    high_watermark: Offset = _START
    committed_epoch: LeaderEpoch = NO_LEADER_EPOCH
    cleaned_offset: Offset = _START
    mark: RecoveryMark = field(default_factory=RecoveryMark)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    producers: ProducerStates | None = None
    snapshots: tuple[Offset, ...] = ()
    new_directories: tuple[str, ...] = ()
    damage: Damage = NO_DAMAGE
    closed: ClosedSegments = field(default_factory=ClosedSegments)
    is_list_outdated: bool = False
    """True if the list of closed segments on the disk differs from `closed`."""
