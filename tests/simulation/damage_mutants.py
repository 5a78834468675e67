"""Bugs in how lost files of a log are noticed, planted on purpose as in `mutants.py`.

Bugs in how changed bytes are found and repaired are planted in `tests/server/test_planted_damage.py`: a seed shows
unrepaired damage only after a minute of virtual time, and by then its topic is usually deleted.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from planting import planted_in_cluster

from penstock.simulation.cluster_traits import LOST_FILES
from penstock.storage.closed_check import ClosedCheck
from penstock.storage.disk import FileStatus
from penstock.storage.segment import Segment


@planted_in_cluster("I1", "I5", "I9", "I13", needs={LOST_FILES})
def closed_segments_are_not_checked() -> AbstractContextManager[Any]:
    """Recovery takes the segment files that it finds for all that were written."""

    def run(self: ClosedCheck, found: list[tuple[Segment, FileStatus]]) -> list[Segment]:
        return [segment for segment, _ in found]

    return patch.object(ClosedCheck, "run", run)
