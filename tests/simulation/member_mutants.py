"""Planted bugs in how a data directory proves that it is complete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from planting import planted_in_cluster

from penstock.cluster.membership import BrokerIdentity
from penstock.storage import data_directory, log_manager
from penstock.storage.data_directory import CLEAN_STOP_FILE, LastUse, read_last_use
from penstock.storage.disk import Disk
from simulation.faults.cluster_traits import ROLLED_BACK


@planted_in_cluster("I1", "I3", "I11", needs={ROLLED_BACK})
def boot_id_alone_proves_the_disk() -> AbstractContextManager[Any]:
    """A copy of the data directory that is restored within one boot counts as the original."""
    return patch.multiple(data_directory, _has_marker=lambda *_, **__: True, _restored_logs=lambda _: {})


@planted_in_cluster("I1", "I3", "I11", needs={ROLLED_BACK})
def clean_stop_of_a_copy_counts() -> AbstractContextManager[Any]:
    """A copy of the data directory of a stopped broker counts as complete, because it has the mark of a clean
    stop.
    """
    is_whole = BrokerIdentity.is_whole

    def read(disk: Disk, boot_id: str) -> LastUse:
        return LastUse() if disk.exists(CLEAN_STOP_FILE) else read_last_use(disk, boot_id)

    def is_whole_after_clean_stop(self: BrokerIdentity, last: Any) -> bool:
        return self.clean_epoch is not None or is_whole(self, last)

    @contextmanager
    def plant() -> Iterator[None]:
        with (
            patch.object(log_manager, "read_last_use", read),
            patch.object(BrokerIdentity, "is_whole", is_whole_after_clean_stop),
        ):
            yield

    return plant()
