"""Parts of a broker for share groups: share coordinator, share-partitions, sessions and queue lengths."""

from __future__ import annotations

from penstock.cluster.image import ImageChange
from penstock.observability.metrics import BrokerMetrics
from penstock.queues.coordinator import ShareCoordinator
from penstock.queues.queue_metrics import QueueMetrics
from penstock.queues.share_partitions import SharePartitions
from penstock.queues.state_client import ShareStateClient
from penstock.server.dead_letter_sink import DeadLetterTopics
from penstock.server.queue_lengths import QueueLengths
from penstock.server.share_sessions import ShareSessions
from penstock.server.topic_writer import TopicWriter
from penstock.state_log.shards import CoordinatorContext
from penstock.transactions.links import BrokerLinks


class ShareServices:
    def __init__(self, context: CoordinatorContext, links: BrokerLinks, writer: TopicWriter) -> None:
        self.coordinator = ShareCoordinator(context)
        self.states = ShareStateClient(context.node_id, self.coordinator, links)
        self.partitions = SharePartitions(
            context.metadata,
            self.states,
            context.clock,
            context.threads,
            context.logger,
            DeadLetterTopics(writer, context.administration),
        )
        self.sessions = ShareSessions(self.partitions)
        self.lengths = QueueLengths(context.metadata, context.replicas, self.partitions)

    def start(self) -> None:
        self.coordinator.start()
        self.lengths.read()

    async def stop(self) -> None:
        self.lengths.overflow.stop()
        self.partitions.stop()
        await self.coordinator.stop()
        self.states.close()

    def on_image(self, change: ImageChange) -> None:
        self.coordinator.on_image(change)
        self.partitions.on_image(change)
        self.lengths.on_image(change)

    def show(self, metrics: BrokerMetrics) -> None:
        QueueMetrics(self.partitions, lambda: len(self.sessions)).show(metrics)
