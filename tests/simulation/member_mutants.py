"""Bugs in how a data directory proves what it has kept, planted on purpose as in `mutants.py`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from planting import planted_in_cluster

from penstock.simulation.cluster_traits import ROLLED_BACK
from penstock.storage import data_directory


@planted_in_cluster("I1", "I3", "I11", needs={ROLLED_BACK})
def boot_id_alone_proves_the_disk() -> AbstractContextManager[Any]:
    """A copy of the data directory that is restored within one boot counts as the original."""
    return patch.multiple(data_directory, _has_marker=lambda *_, **__: True, _restored_logs=lambda _: {})
