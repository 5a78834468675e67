"""Cooperation of sibling brokers: the brokers that one `penstock broker --processes` runs on a machine.

The functions do nothing for a broker without siblings (`share` is None).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from penstock.cluster.metadata import ClusterMetadata
from penstock.gateway.health import Health
from penstock.gateway.http.service import HttpService
from penstock.server.environment import MachineShare

SIBLING_SECONDS = 3.0
"""Time in seconds that a starting broker waits for its siblings to register."""


async def await_siblings(share: MachineShare | None, metadata: ClusterMetadata) -> None:
    """Wait until all siblings have registered, so that the first topics are placed on all of them."""
    if share is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(SIBLING_SECONDS):
                await metadata.until(lambda image: image.brokers.keys() >= set(share.siblings))


async def exchange_reports(
    share: MachineShare | None, http: HttpService, health: Callable[[], Health]
) -> None:
    """Show the metrics and the health of all siblings on the HTTP port, which they share."""
    if share is not None:
        await share.reports.start(http.own_metrics, health)
        http.shown_metrics, http.shown_health = share.reports.metrics, share.reports.health


def close_reports(share: MachineShare | None) -> None:
    if share is not None:
        share.reports.close()
