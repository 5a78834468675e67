from __future__ import annotations

from penstock.observability.exposition import MetricsSnapshot, snapshot_steps
from penstock.observability.metrics import BrokerMetrics


def take_snapshot(metrics: BrokerMetrics) -> MetricsSnapshot:
    """Read all metrics at once; a broker reads them in steps."""
    steps = snapshot_steps(metrics)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            snapshot: MetricsSnapshot = done.value
            return snapshot
