"""Planted bugs in how lost files and changed bytes of a log are found and repaired."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from planting import planted_in_cluster

from penstock.storage import scrub
from penstock.storage.closed_check import ClosedCheck
from penstock.storage.disk import FileStatus
from penstock.storage.repair import Patch
from penstock.storage.segment import Segment
from simulation.faults.cluster_traits import CHANGED_BYTES, LOST_FILES


@planted_in_cluster("I1", "I5", "I9", "I13", needs={LOST_FILES})
def closed_segments_are_not_checked() -> AbstractContextManager[Any]:
    """Recovery does not compare the segment files with the list of closed segments."""

    def run(self: ClosedCheck, found: list[tuple[Segment, FileStatus]]) -> list[Segment]:
        return [segment for segment, _ in found]

    return patch.object(ClosedCheck, "run", run)


@planted_in_cluster("I13", needs={CHANGED_BYTES})
def scrub_finds_nothing() -> AbstractContextManager[Any]:
    """The scrub ignores a wrong CRC."""
    return patch.object(scrub, "crc_matches", lambda *_: True)


@planted_in_cluster("I13", needs={CHANGED_BYTES})
def repair_writes_nothing() -> AbstractContextManager[Any]:
    """A repair fetches the records of another replica and does not write them."""
    return patch.object(Patch, "work", lambda _: None)
