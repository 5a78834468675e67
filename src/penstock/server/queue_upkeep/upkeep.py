"""Background work for queues that needs no consumer: alarms, loading of share-partitions that have work, and the sweep
of expired records.
"""

from __future__ import annotations

from typing import Final

from penstock.observability.logs import Logger
from penstock.observability.metrics import BrokerMetrics
from penstock.server.context import BrokerContext
from penstock.server.queue_upkeep.expiry_sweep import ExpirySweep
from penstock.server.queue_upkeep.letter_alarms import LetterAlarms
from penstock.server.queue_upkeep.unused_queues import UnusedQueues

ROUND_SECONDS: Final = 2.0


class QueueUpkeep:
    def __init__(self, context: BrokerContext, logger: Logger) -> None:
        """Create the object and set it as `context.queue_upkeep`, where the Inspect API finds it."""
        context.queue_upkeep = self
        self.unused = UnusedQueues(context)
        self.sweep = ExpirySweep(context, logger)
        self.alarms = LetterAlarms(context)

    async def run(self) -> None:
        self.alarms.run()
        await self.unused.run()
        await self.sweep.run()

    def show(self, metrics: BrokerMetrics) -> None:
        metrics.add_counter(
            "penstock_share_swept_records",
            "Expired records that the periodic sweep removed from queues before a consumer requested them.",
            lambda: self.sweep.expired,
        )
